"""The seam to the hosts: real SSH on one side, a saved bundle on the other."""

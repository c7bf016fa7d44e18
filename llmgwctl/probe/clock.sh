#!/bin/sh
# This host's clock. Arguments: root state_dir. What the controller's clock says is put beside it on the way back.
#
# Prints: begin SECONDS (with as many digits as `date` has here).

LC_ALL=C date '+begin %s.%N'

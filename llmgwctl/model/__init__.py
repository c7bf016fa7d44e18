"""The nouns: frozen facts with units in their names, errors, and the product table. Imports nothing above it."""

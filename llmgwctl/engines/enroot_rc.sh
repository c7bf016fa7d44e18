#!/bin/sh
# The command script of an enroot container: in place of the image's own entrypoint, which would stand before ours.
exec "$@"

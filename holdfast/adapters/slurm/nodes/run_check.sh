#!/bin/sh
# Runs a check, with a name of its own in front; the last line says how it ended.
name=$1
shift
"$@"
echo "$name ended with exit status $?"

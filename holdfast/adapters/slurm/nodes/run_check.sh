#!/bin/sh
# Runs a check, with a prefix before each line; the last line is its result.
name=$1
shift
"$@"
echo "$name ended with exit status $?"

#!/bin/sh
# The assignment comes on stdin, with what came before it; the result goes to stdout.
set -e
words=$(wc -w)
echo "$words words in handoff $BATONBUS_HANDOFF, attempt $BATONBUS_ATTEMPT."

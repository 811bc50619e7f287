#!/bin/sh
# Takes out of the image, whose packages are installed, what nothing of Recount uses: docs/decisions/0039.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
packages=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parents[1])')

cd "$packages/pyspark/jars"
# each word is a pattern of the shell; rm fails where one matches nothing
# shellcheck disable=SC2046
rm -r $(grep -v '^#' "$here/unused_jars.txt")

# the tests of four libraries, and what programs in C++ are compiled with
cd "$packages"
find numpy pandas pyarrow scipy -type d -name tests -prune -exec rm -r {} +
rm -r pyarrow/include

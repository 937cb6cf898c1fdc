#!/bin/sh
# Shell scripts parse with dash; shellcheck where there is one.
set -u
found=0
for script in $(git ls-files -co --exclude-standard '*.sh'); do
    sh -n "$script" || found=1
done
bash -n .ci/run || found=1
if command -v shellcheck >/dev/null; then
    # shellcheck disable=SC2046 # names without blanks
    shellcheck $(git ls-files -co --exclude-standard '*.sh') .ci/run || found=1
else
    echo "lint: shell: there is no shellcheck, scripts were only parsed"
fi
exit $found

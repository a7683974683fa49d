#!/usr/bin/env bash
# All that precedes an upload: build the sdist and the wheel into dist/, check what a package index
# will show, and use the wheel in a fresh environment of every supported Python. It uploads nothing:
# [UV=uv] [PYTHONS="3.11 3.12 3.13"] scripts/trust/release.sh
set -euo pipefail
UV=${UV:-uv}
PYTHONS=${PYTHONS:-3.11 3.12 3.13}
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

refuse() {
    echo "release: $1" >&2
    exit 2
}
test -n "$version" || refuse "pyproject.toml has no version"
test -z "$(git status --porcelain)" || refuse "the working tree has changes that are not committed"
grep -qE "^## ${version//./\\.}( |$)" CHANGELOG.md ||
    refuse "CHANGELOG.md has no heading \"## $version\"; give it to what stands below \"Unreleased\""
test -z "$(git tag --list "v$version")" || test "$(git rev-list -n 1 "v$version")" = "$(git rev-parse HEAD)" ||
    refuse "the tag v$version is another commit; raise the version"

rm -rf dist
"$UV" build --quiet --out-dir dist
"$UV" tool run --quiet twine check --strict dist/*
for python in $PYTHONS; do
    PYTHON=$python UV=$UV DIST=$PWD/dist bash scripts/trust/test_wheel.sh
    echo "fedclust $version works on Python $python"
done

cat <<END

fedclust $version is ready in dist/. To publish it:
  git tag v$version && git push origin v$version
  $UV publish dist/*
END

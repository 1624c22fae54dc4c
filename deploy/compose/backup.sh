#!/bin/sh
# Saves data and secrets of the installation in one archive, or puts them back: docs/how-to/disaster-recovery.md.
#   deploy/compose/backup.sh save FILE
#   deploy/compose/backup.sh restore FILE     replaces what the volumes hold
set -eu
usage="usage: deploy/compose/backup.sh save|restore FILE"
# The object store keeps objects' ETags, without which Spark refuses to read them, in extended attributes.
attributes="--xattrs --xattrs-include=user.*"
action=${1:?$usage}
file=$(realpath "${2:?$usage}")
cd "$(dirname "$0")/.."
# All volumes, also of profiles that are not in use now; but for what workers and compilers make again.
export COMPOSE_PROFILES='*'
mounts=$(docker compose config --volumes | sed '/cache$/d; /^spark-worker/d; s|.*|--volume &:/volumes/&|')

in_volumes() { # in_volumes COMMAND: in a container that sees all of them, as root and without a network
  # shellcheck disable=SC2086  # several words
  docker compose run --rm --no-deps -T $mounts --entrypoint sh secrets -euc "cd /volumes; $1"
}

# Kafka, lake and checkpoint refer to each other: what is copied while they change does not fit together.
[ -z "$(docker compose ps --quiet)" ] || { echo "error: containers are running: docker compose --profile '*' stop" >&2; exit 1; }
case $action in
  save)
    umask 077 # passwords are in it
    in_volumes "tar --create --sparse --numeric-owner $attributes *" >"$file.part"
    mv "$file.part" "$file"
    ;;
  restore)
    tar --list --file "$file" >/dev/null
    # The folders in `secrets` are where that container mounts the others' volumes, so they cannot be removed.
    in_volumes "find . -mindepth 2 -not -path './secrets/*' -delete
      tar --extract --preserve-permissions --numeric-owner $attributes" <"$file"
    ;;
  *) echo "$usage" >&2; exit 2 ;;
esac

#!/bin/sh
# The first process of the engine's namespaces: makes Debian's file system the root, and runs Docker in it.
#   engine.sh ROOT STORE TREE CONTEXTS CGROUP
set -eu
root=$1 store=$2 tree=$3 contexts=$4 group=$5
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root/srv/tree" "$root/srv/contexts" "$root/var/lib/docker" "$root/old"
mount --bind "$store" "$root/var/lib/docker"
mount --bind -o ro "$tree" "$root/srv/tree"
mount --bind -o ro "$contexts" "$root/srv/contexts"
cd "$root"
pivot_root . old
cd /
umount -l /old
ip link set lo up
dockerd --storage-driver overlay2 --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "$group" \
  --host unix:///run/docker.sock &
wait

#!/usr/bin/env bash
# A real Slurm on this machine alone, for tests: one node with four pretended A800s, accounting, preemption.
#
#   slurm/one_node.sh up      install the Debian packages that are missing, start every daemon, wait until the node is idle
#   slurm/one_node.sh down    stop those daemons and delete what they wrote; the packages stay
#   slurm/one_node.sh env     the variables that the Slurm commands and the tests need: eval "$(slurm/one_node.sh env)"
#
# Needs root on Debian or Ubuntu; no systemd, no device, no cgroup. Everything lives under $HOME_DIR: a Slurm that is set up
# under /etc/slurm is not touched, and the ports are not its own.
set -euo pipefail

HOME_DIR=${SCPO_SLURM_DIR:-/var/tmp/scpo-slurm}
GPUS=4
CPUS=64 # more than there are: two 32-CPU jobs are refused by the GPUs, not by the CPUs
NODE=$(hostname -s)
PACKAGES=(slurm-wlm slurmdbd mariadb-server munge)
export SLURM_CONF=$HOME_DIR/etc/slurm.conf

say() { echo "[$(date +%T)] $*"; }

wait_for() { # wait_for <seconds> <command...>
  local limit=$((SECONDS + $1))
  shift
  while ((SECONDS < limit)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.2
  done
  say "gave up waiting for: $*"
  for log in "$HOME_DIR"/log/*.log; do echo "$log" && tail -n 5 "$log"; done
  return 1
}

install_packages() {
  if dpkg -s "${PACKAGES[@]}" >/dev/null 2>&1; then return; fi
  apt-get -qq update
  # RUNLEVEL=1: no package starts a daemon of its own
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${PACKAGES[@]}" >/dev/null
}

write_configuration() {
  mkdir -p "$HOME_DIR"/{etc,log,run,munge,mysql,state,spool}
  chmod 755 "$HOME_DIR" "$HOME_DIR"/{etc,log,run}
  for gpu in $(seq 0 $((GPUS - 1))); do # device files like /dev/null: with them Slurm sets CUDA_VISIBLE_DEVICES
    [ -e "$HOME_DIR/gpu$gpu" ] || mknod "$HOME_DIR/gpu$gpu" c 1 3
  done
  cat >"$HOME_DIR/etc/slurm.conf" <<CONF
ClusterName=scpotest
SlurmctldHost=$NODE(127.0.0.1)
SlurmctldPort=16817
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
# cred_expire: a requeued job waits that long before it starts again, 120 s by default
AuthInfo=socket=$HOME_DIR/munge/socket,cred_expire=5
# The default is 1001: with 4, tables of a few runs become several arrays.
MaxArraySize=4
StateSaveLocation=$HOME_DIR/state
SlurmdSpoolDir=$HOME_DIR/spool
SlurmctldPidFile=$HOME_DIR/run/slurmctld.pid
SlurmdPidFile=$HOME_DIR/run/slurmd.pid
SlurmctldLogFile=$HOME_DIR/log/slurmctld.log
SlurmdLogFile=$HOME_DIR/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=2,sched_interval=2
SlurmdParameters=config_overrides
KillWait=5
MinJobAge=300
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PropagateResourceLimits=NONE
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStoragePass=$HOME_DIR/munge/socket
AccountingStorageTRES=gres/gpu
NodeName=$NODE NodeAddr=127.0.0.1 Port=16818 CPUs=$CPUS RealMemory=600000 Gres=gpu:a800:$GPUS State=UNKNOWN
PartitionName=gpu Nodes=$NODE Default=YES MaxTime=1-00:00:00 State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=$NODE MaxTime=1-00:00:00 State=UP PriorityTier=10 PreemptMode=OFF
CONF
  echo "Name=gpu Type=a800 File=$HOME_DIR/gpu[0-$((GPUS - 1))]" >"$HOME_DIR/etc/gres.conf"
  echo "ConstrainDevices=no" >"$HOME_DIR/etc/cgroup.conf"
  cat >"$HOME_DIR/etc/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$HOME_DIR/munge/socket
DbdHost=$NODE
DbdAddr=127.0.0.1
DbdPort=16819
SlurmUser=slurm
LogFile=$HOME_DIR/log/slurmdbd.log
PidFile=$HOME_DIR/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
CONF
  chmod 600 "$HOME_DIR/etc/slurmdbd.conf"
  chown -R slurm:slurm "$HOME_DIR"/{log,run,state} "$HOME_DIR/etc/slurmdbd.conf"
}

as() { # as <user> <command...>
  local user=$1
  shift
  setpriv --reuid="$user" --regid="$user" --init-groups "$@"
}

start_munge() {
  dd if=/dev/urandom of="$HOME_DIR/munge/key" bs=1024 count=1 status=none
  chmod 600 "$HOME_DIR/munge/key"
  chown -R munge:munge "$HOME_DIR/munge"
  as munge munged --key-file="$HOME_DIR/munge/key" --socket="$HOME_DIR/munge/socket" \
    --pid-file="$HOME_DIR/munge/munged.pid" --log-file="$HOME_DIR/munge/munged.log" --seed-file="$HOME_DIR/munge/seed"
  wait_for 10 munge --socket "$HOME_DIR/munge/socket" -n
}

start_database() {
  local socket=$HOME_DIR/mysql/socket
  chown mysql:mysql "$HOME_DIR/mysql"
  mariadb-install-db --no-defaults --user=mysql --datadir="$HOME_DIR/mysql/data" >/dev/null
  setsid mariadbd --no-defaults --user=mysql --datadir="$HOME_DIR/mysql/data" --socket="$socket" --skip-networking \
    --pid-file="$HOME_DIR/mysql/mariadbd.pid" --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 \
    >"$HOME_DIR/log/mariadb.log" 2>&1 </dev/null &
  wait_for 60 mariadb-admin --socket="$socket" ping
  mariadb --socket="$socket" -e "CREATE DATABASE slurm_acct_db; CREATE USER slurm@localhost IDENTIFIED VIA unix_socket; \
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
  # MYSQL_UNIX_PORT: where the client library looks for the socket of `localhost`
  MYSQL_UNIX_PORT=$socket as slurm slurmdbd
  wait_for 30 sacctmgr -n list cluster
  sacctmgr -i add cluster scpotest >/dev/null
}

has_no_jobs() { [ -z "$(timeout 5 squeue --noheader)" ]; }

is_idle() { [ "$(sinfo -h -p gpu -o %t)" = idle ]; }

up() {
  [ "$(id -u)" = 0 ] || { echo "one_node.sh needs root"; exit 1; }
  down
  install_packages
  say "packages are installed"
  write_configuration
  start_munge
  start_database
  say "accounting is up"
  as slurm slurmctld
  wait_for 20 scontrol ping
  slurmd -N "$NODE"
  wait_for 30 is_idle
  say "the node is idle: $(sinfo -h -p gpu -o '%c CPUs, %G')"
}

down() {
  if [ -s "$HOME_DIR/run/slurmctld.pid" ]; then
    timeout 10 scancel --user=root || true
    wait_for 15 has_no_jobs || true
  fi
  for name in run/slurmd run/slurmctld run/slurmdbd mysql/mariadbd munge/munged; do
    stop "$HOME_DIR/$name.pid" "${name##*/}"
  done
  rm -rf "$HOME_DIR"
}

stop() { # stop <pid file> <program>: only if that process is the program still
  [ -s "$1" ] || return 0
  local pid
  pid=$(cat "$1")
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || return 0
  kill "$pid"
  for ((i = 0; i < 100; i++)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -9 "$pid"
}

case ${1:-} in
  up | down) "$1" ;;
  env) echo "export SLURM_CONF=$SLURM_CONF SCPO_SLURM=$HOME_DIR" ;;
  *)
    echo "usage: $0 up | down | env"
    exit 2
    ;;
esac

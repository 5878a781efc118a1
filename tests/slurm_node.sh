#!/usr/bin/env bash
# A real Slurm with accounting for tests, on this machine alone: slurm_node.sh install|start|stop|crash|env [FOLDER].
# It has two nodes, alpha and beta, which are two slurmd with host names of their own (UTS namespaces), so that a job runs
# on "another machine" than the one that started it. Every file lies in FOLDER, and every daemon is stopped by its pid file.
# It needs root and Debian's slurm-wlm, slurmdbd, munge and mariadb-server; only `install` installs them.
set -euo pipefail
what=${1:?install, start, stop, crash or env}
D=${2:-${TMPDIR:-/tmp}/slurm-node-$UID}
PORT=${SLURM_NODE_PORT:-17710}  # and the next five
DAEMONS="alpha beta slurmctld slurmdbd mariadb munge"

stop() {
  for one in $DAEMONS; do
    pid=$(cat "$D/$one.pid" "$D/$one/$one.pid" 2>/dev/null | head -1) || true
    [ -n "$pid" ] && kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
    rm -f "$D/$one.pid" "$D/$one/$one.pid"
  done
}
wait_for() {  # SECONDS COMMAND...: until the command succeeds
  local end=$((SECONDS + $1)); shift
  while [ $SECONDS -lt $end ]; do timeout 10 "$@" >/dev/null 2>&1 && return; sleep 0.2; done
  echo "slurm_node.sh: no success within the time: $*; the logs are in $D" >&2; return 1
}
idle() { [ "$(sinfo -h -N -o %t 2>/dev/null | grep -c '^idle$')" -ge 2 ]; }

case $what in
install)
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm slurmdbd munge mariadb-server
  exit ;;
env) echo "export SLURM_CONF=$D/slurm.conf"; exit ;;
stop) stop; exit ;;
crash)  # node beta, as if its power were cut: slurmd, and the jobs that it runs
  pid=$(cat "$D/beta.pid"); space=$(readlink "/proc/$pid/ns/uts")
  for one in /proc/[0-9]*; do
    [ "$(readlink "$one/ns/uts" 2>/dev/null)" = "$space" ] && kill -9 "${one#/proc/}" 2>/dev/null || true
  done
  exit ;;
start) ;;
*) echo "slurm_node.sh: say install, start, stop, crash or env" >&2; exit 2 ;;
esac

[ "$UID" = 0 ] || { echo "slurm_node.sh: Slurm's daemons need root" >&2; exit 1; }
for program in slurmctld slurmd slurmdbd munged mariadbd; do
  PATH=$PATH:/usr/sbin command -v $program >/dev/null || {
    echo "slurm_node.sh: $program is missing; '$0 install' installs slurm-wlm, slurmdbd, munge and mariadb-server" >&2; exit 1; }
done
stop; rm -rf "$D"
mkdir -p "$D"/{munge,mariadb,state,alpha,beta}; chmod 755 "$D"
chown munge:munge "$D/munge"; chown mysql:mysql "$D/mariadb"
trap 'code=$?; [ $code = 0 ] || stop' EXIT

# munge: who asks
dd if=/dev/urandom of="$D/munge/key" bs=1024 count=1 status=none
chown munge:munge "$D/munge/key"; chmod 400 "$D/munge/key"
runuser -u munge -- /usr/sbin/munged --socket="$D/munge/socket" --key-file="$D/munge/key" --pid-file="$D/munge/munge.pid" \
  --log-file="$D/munge/log" --seed-file="$D/munge/seed"

# MariaDB and slurmdbd: what sacct answers from
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
cd "$D/mariadb"
mariadb-install-db --no-defaults --user=mysql --datadir="$D/mariadb/data" --skip-test-db >"$D/mariadb/install.log" 2>&1
/usr/sbin/mariadbd --no-defaults --user=mysql --datadir="$D/mariadb/data" --socket="$D/mariadb/socket" \
  --pid-file="$D/mariadb/mariadb.pid" --bind-address=127.0.0.1 --port=$((PORT + 4)) --innodb-lock-wait-timeout=900 \
  --innodb-flush-log-at-trx-commit=0 >"$D/mariadb/log" 2>&1 </dev/null &
wait_for 30 mariadb --no-defaults --socket="$D/mariadb/socket" -e 'select 1'
mariadb --no-defaults --socket="$D/mariadb/socket" <<C
create database slurm_acct_db; create user slurm@127.0.0.1 identified by '$password';
grant all on slurm_acct_db.* to slurm@127.0.0.1;
C
cat >"$D/slurmdbd.conf" <<C
AuthType=auth/munge
AuthInfo=socket=$D/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((PORT + 1))
SlurmUser=root
LogFile=$D/slurmdbd.log
PidFile=$D/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((PORT + 4))
StorageUser=slurm
StoragePass=$password
StorageLoc=slurm_acct_db
C
chmod 600 "$D/slurmdbd.conf"

# No cgroups: memory is looked at every second, and a job above its share is killed (OverMemoryKill).
cat >"$D/slurm.conf" <<C
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$D/munge/socket
StateSaveLocation=$D/state
SlurmctldPidFile=$D/slurmctld.pid
SlurmctldLogFile=$D/slurmctld.log
SlurmdSpoolDir=$D/%n
SlurmdPidFile=$D/%n.pid
SlurmdLogFile=$D/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory,CR_LLN
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill,UsePss
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((PORT + 1))
AccountingStoragePass=$D/munge/socket
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=1,defer
KillWait=5
OverTimeLimit=0
InactiveLimit=0
MinJobAge=300
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
NodeName=alpha NodeHostname=alpha NodeAddr=127.0.0.1 Port=$((PORT + 2)) CPUs=2 RealMemory=4000 State=UNKNOWN
NodeName=beta NodeHostname=beta NodeAddr=127.0.0.1 Port=$((PORT + 3)) CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=alpha,beta Default=YES MaxTime=INFINITE State=UP
C
export SLURM_CONF=$D/slurm.conf
/usr/sbin/slurmdbd
wait_for 30 sacctmgr -n show cluster
sacctmgr -i add cluster test >/dev/null
/usr/sbin/slurmctld
for node in alpha beta; do unshare --uts sh -c "hostname $node; exec /usr/sbin/slurmd -N $node"; done
export -f idle; wait_for 40 bash -c idle

#!/bin/sh
# Make a virtual environment with scpo in it, or say in one line what is in the way.
#
#   sh setup.sh <folder> <pins> <extras> <MB to download> <MB on the disk>
#
# `make` calls it, with the variables PYTHON and TORCH_INDEX. Nothing is done if the stamp in the
# folder describes the installation that is wanted. The stamp is emptied first and written last, so
# an installation that was interrupted, moved or has another Python is detected and made anew. An
# environment without a stamp was made by hand: packages are installed into it, it is not deleted.
set -u
export LC_MESSAGES=C  # the messages of venv and pip are searched below

folder=$1 pins=$2 extras=$3 download=$4 disk=$5
python=$folder/bin/python
stamp=$folder/scpo-environment.txt
again="then give the same command again"
compilers="Debian, Ubuntu: apt-get install build-essential; macOS: xcode-select --install"

say() { echo "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# The Python that makes the environment: the one that was named, else the first that is new enough.
find_python() {
  named=${PYTHON:-python3}
  others="python3.13 python3.12 python3.11"
  [ "$named" = python3 ] || others=
  for candidate in "$named" $others; do
    new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
    if "$candidate" -c "$new_enough" 2>/dev/null; then maker=$candidate; return; fi
  done
  version=$("$named" --version 2>&1) || version="not there"
  fail "Python 3.11 or newer is needed, $named is $version. Install one, or name it:" \
    "make setup PYTHON=/path/to/python3.11"
}

# What an installation depends on. The first three lines cannot be changed by pip. The index of
# torch is left out: it is named once, when the build is chosen.
describe() {
  echo "folder $(cd "$folder" && pwd -P)"
  echo "project $(pwd -P)"
  echo "python $("$python" -c 'import sys, pip; print("%d.%d" % sys.version_info[:2])')"
  echo "content $(cat pyproject.toml "$pins" | cksum) $extras"
}

first_of() {
  for tool in "$@"; do command -v "${tool%% *}" >/dev/null && return; done
  return 1
}

check_machine() {
  # Up to 3.12 Python reads .pth files, which name the checkout, in the encoding of the locale.
  readable='import locale, sys; encoding = locale.getencoding().lower().replace("-", "")
sys.exit(not "".join(sys.argv[1:]).isascii() and encoding != "utf8")'
  "$maker" -c "$readable" "$(pwd -P)" "$folder" ||
    fail "the locale cannot express $(pwd -P). Either export LC_ALL=C.UTF-8, $again," \
      "or move the checkout to a path of ASCII letters"
  # Debian and Ubuntu ship Python without what venv needs.
  version=$("$maker" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$maker" -c 'import ensurepip, venv; ensurepip.version()' 2>/dev/null ||
    fail "Python $version ($maker) cannot make virtual environments." \
      "Debian, Ubuntu: apt-get install python$version-venv, $again"
  case ",$extras," in *,alfworld,*)
    missing=
    command -v make >/dev/null || missing="make, "
    first_of "${CC:-gcc}" gcc || missing="${missing}a C compiler, "
    first_of "${CXX:-g++}" g++ c++ clang++ || missing="${missing}a C++ compiler, "
    [ -z "$missing" ] ||
      fail "missing: ${missing%, }. jericho and fast-downward-textworld, which TextWorld needs, are" \
        "compiled here. $compilers, $again" ;;
  esac
  free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1000) }')
  [ "$free" -ge "$disk" ] ||
    fail "the disk of $folder has $free MB free, $disk MB are needed. Make room, $again"
}

pip_install() {
  # As a module: the first line of a script holds no path with spaces. The environment's bin comes
  # first in PATH because fast-downward-textworld's build calls `python`. --use-pep517: pip before
  # 23.1 builds packages without a pyproject.toml inside the environment.
  PATH="$(cd "$folder/bin" && pwd -P):$PATH" "$python" -m pip --log "$folder/pip.log" \
    install --disable-pip-version-check --use-pep517 -c "$pins" "$@"
}

# One line on why pip failed; the first cause that matches explains the others.
explain_pip() {
  has() { tail -n 400 "$folder/pip.log" 2>/dev/null | grep -qE "$1"; }
  if has 'No space left on device|Errno 28[^0-9]|Disk quota exceeded|Errno 122[^0-9]'; then
    fail "the disk is full. Make room there, in the folder of temporary files (TMPDIR names" \
      "another) or in pip's cache (pip cache purge), $again"
  elif has 'NewConnectionError|Failed to establish|[Nn]ame resolution|Max retries|ProxyError' ||
    has '[Tt]imed out|Connection (aborted|broken|refused)|ConnectionResetError|SSLError'; then
    fail "no package index can be reached. Check the network, and a proxy (HTTPS_PROXY) or" \
      "mirror (PIP_INDEX_URL), $again; pip keeps what it has downloaded"
  elif has 'Permission denied|Read-only file system'; then
    fail "a folder cannot be written; the lines above name it. Make it yours, $again"
  elif has 'No matching distribution found'; then
    fail "the package index has no build of a package for this Python and machine; the lines" \
      "above name it. Try another Python: make setup PYTHON=python3.11"
  elif has '[Ff]ailed to build|Failed building wheel|subprocess-exited-with-error'; then
    fail "a package could not be compiled; the lines above name it ($compilers), $again"
  fi
  fail "pip failed; the lines above say why"
}

installed=$(cat "$stamp" 2>/dev/null)
if [ -n "$installed" ] && [ "$(describe 2>/dev/null)" = "$installed" ]; then exit 0; fi
trap 'say "stopped. The same command starts again; pip keeps what it has downloaded"; exit 130' INT

place() { head -n 3; }
# An environment that another checkout made here, and that may be in use.
owner=$(echo "$installed" | sed -n 's/^project //p')
if [ -n "$owner" ] && [ "$owner" != "$(pwd -P)" ] && [ -e "$owner/setup.sh" ] &&
  [ "$(echo "$installed" | head -n 1)" = "folder $(cd "$folder" && pwd -P)" ]; then
  fail "$folder is the environment of the checkout $owner. Name another: make setup VENV=<folder>," \
    "or delete $folder if nothing uses it"
fi
if [ -e "$stamp" ]; then
  if [ -z "$installed" ]; then
    make_anew="its installation was interrupted"
  elif [ "$(describe 2>/dev/null | place)" != "$(echo "$installed" | place)" ]; then
    make_anew="it was moved, or has another Python now"
  else
    make_anew=
  fi
elif [ -e "$folder/pyvenv.cfg" ]; then
  "$python" -c "import pip, sys; sys.exit(sys.version_info < (3, 11))" ||
    fail "$folder cannot be used: it needs Python 3.11 or newer and pip. Delete it, $again"
  make_anew=
elif [ -n "$(ls -A "$folder" 2>/dev/null)" ]; then
  fail "$folder is no virtual environment. Name another: make setup VENV=<folder>"
else
  make_anew="there was none"
fi

if [ -n "$make_anew" ]; then
  find_python
  mkdir -p "$folder" || fail "$folder cannot be made. Name another: make setup VENV=<folder>"
  check_machine
  say "making $folder with $("$maker" --version): $make_anew"
  : >"$stamp"  # empty: not finished, and ours to delete
  find "$folder/" -mindepth 1 ! -name "${stamp##*/}" -delete
  "$maker" -m venv "$folder" || fail "$maker -m venv failed; the lines above say why"
elif [ -e "$stamp" ]; then
  : >"$stamp"
fi

say "pip: about $download MB to download, $disk MB in $folder. It compiles some packages" \
  "(up to 2 min) and at the end unpacks all (1 min)"
rm -f "$folder/pip.log"
if [ -n "${TORCH_INDEX:-}" ]; then
  pip_install --index-url "$TORCH_INDEX" torch || explain_pip
elif "$python" -m pip install --quiet --retries 0 --dry-run --report - -c "$pins" torch \
  2>/dev/null | grep -q '"name": "nvidia-'; then
  # The default Linux build of torch comes with CUDA: said while it can still be stopped.
  say "NOTE: this torch comes with CUDA, a download of about 3 GB. Without a GPU, stop now (Ctrl-C)"
  say "      and give make setup TORCH_INDEX=<CPU index of pytorch.org> (README, 'Which torch')"
  sleep 5
fi
pip_install -e ".[$extras]" || explain_pip
if [ -e "$stamp" ]; then describe >"$stamp.tmp" && mv "$stamp.tmp" "$stamp"; fi
say "$folder is ready"

"""What is run in a sandbox to keep a workspace, to compare and to put it back; see `task_tree`.

Commits are in a repository of Paddock's own in the user's home, whatever the workspace is: what an
agent does to the repository that it works in, or makes there, changes none of them. Which directory
and which repository are meant is in the message of the first commit, whose id the task's record
has. Nothing that an agent may have configured (filters, hooks, a file system monitor, attributes)
counts for these commands, and its own repository is asked for as little as there can be: files are
kept byte by byte. What cannot be read is left out, and said.
Repositories within the workspace count as the plain files that are in them. Aside, in a tree that
the same message names, are the user's index, the rules of `info/exclude` and what was ignored.
"""

_ALONE = """
set -u
command -v git >/dev/null || exit 92
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
unset GIT_EXTERNAL_DIFF GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_NAMESPACE GIT_COMMON_DIR
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export XDG_CONFIG_HOME=/dev/null GIT_OPTIONAL_LOCKS=0 GIT_TEMPLATE_DIR=
export GIT_AUTHOR_NAME=paddock GIT_AUTHOR_EMAIL=paddock@localhost
export GIT_COMMITTER_NAME=paddock GIT_COMMITTER_EMAIL=paddock@localhost
plain() {
  git -c core.fsmonitor=false -c core.hooksPath=/dev/null -c core.quotePath=false \\
    -c gc.auto=0 -c core.bare=false -c core.attributesFile=/dev/null \\
    -c advice.addEmbeddedRepo=false -c core.autocrlf=false -c core.untrackedCache=false "$@"
}
settle() {
  [ -d "$own/objects" ] ||
    { mkdir -p "${own%/*}" && plain init -q --bare "$own"; } || exit 95
  rm -rf "$own/hooks" "$own/info/attributes" "$own/objects/info/alternates" "$own/commondir" &&
    printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = true\\n' > "$own/config" &&
    mkdir -p "$own/info" &&
    printf '* %s\\n' '-text !crlf !eol -ident -filter !working-tree-encoding !diff' \\
      > "$own/info/attributes" || exit 95
}
"""
_OPEN = (
    _ALONE
    + """
cd -- "$1" 2>/dev/null || exit 91
task=$2 top= repository= head= branch= aside= all_rules= legacy=
own="$HOME/.paddock/trees/$(printf %s "$1" | sha256sum | cut -c1-32).git"
scratch=$(mktemp -d) || exit 95
newline=$(printf '\\001')
trap 'rm -rf "$scratch"' EXIT
mine() { GIT_DIR="$own" GIT_WORK_TREE="$top" plain "$@"; }
theirs() { GIT_DIR="$repository" GIT_WORK_TREE="$top" plain "$@"; }
look() {
  top=$(plain -c safe.directory='*' rev-parse --show-toplevel 2>/dev/null) &&
    repository=$(plain -c safe.directory='*' rev-parse --absolute-git-dir 2>/dev/null) ||
    { top=$(pwd -P); repository=; }
  [ -z "$repository" ] || {
    head=$(theirs rev-parse -q --verify 'HEAD^{commit}') || head=
    branch=$(theirs symbolic-ref -q HEAD) || branch=
  }
}
recall() {
  case "$1" in *[!0-9a-f]*|'') exit 97 ;; esac
  if said=$(GIT_DIR="$own" plain cat-file commit "$1" 2>/dev/null); then
    read_fields
  else
    recall_theirs "$1"
  fi
  [ -n "$top" ] && cd -- "$top" 2>/dev/null || exit 91
}
# Checkpoints were once in the user's repository: what those say is asked for there.
recall_theirs() {
  look
  [ -n "$repository" ] && said=$(theirs cat-file commit "$1" 2>/dev/null) || exit 97
  case "$said" in *"paddock: "*" $task") ;; *) exit 97 ;; esac
  legacy=$(theirs rev-parse --git-common-dir) && legacy=$(cd -- "$legacy" && pwd -P) || exit 97
  export GIT_ALTERNATE_OBJECT_DIRECTORIES="$legacy/objects"
  head=$(printf '%s\\n' "$said" | sed -n 's/^parent //p' | head -n 1)
  branch=$(cat "$repository/paddock-branch.$task.before" 2>/dev/null) || branch=
}
# In the shell: five pipes for each checkpoint took longer than git. The last line of a kind counts.
read_fields() {
  top= repository= head= branch= aside=
  while IFS= read -r each; do
    case "$each" in
      "paddock-top "*) top=${each#paddock-top } ;;
      "paddock-repository "*) repository=${each#paddock-repository } ;;
      "paddock-head "*) head=${each#paddock-head } ;;
      "paddock-branch "*) branch=${each#paddock-branch } ;;
      "paddock-aside "*) aside=${each#paddock-aside } ;;
    esac
  done <<END
$said
END
}
ignore() {
  if [ -n "$aside" ] && mine cat-file blob "$aside:exclude" > "$own/info/exclude" 2>/dev/null; then
    [ -z "$all_rules" ] ||
      { echo && mine cat-file blob "$aside:ignored"; } >> "$own/info/exclude" || exit 97
  elif [ -n "$repository" ]; then
    cat "$repository/info/exclude" 2>/dev/null > "$own/info/exclude" || :
  else
    printf '%s\\n' __pycache__/ node_modules/ .venv/ .cache/ > "$own/info/exclude" || exit 95
  fi
}
# Names are one a line, with another sign for what is a new line in them.
named() {
  case "$1" in
    *"$newline"*) called=$(printf '%s.' "$1" | tr '\\001' '\\n') && called=${called%.} ;;
    *) called=$1 ;;
  esac
}
inner() {
  ( cd -- "$top/$1" && GIT_DIR="$own" GIT_WORK_TREE="$top/$1" GIT_INDEX_FILE="$scratch/none" \\
      plain ls-files -o -z --exclude-standard | tr '\\n\\000' '\\001\\n' | grep '/$' |
    while IFS= read -r each; do
      case "$1$each" in .paddock/*) ;; *) printf '%s%s\\n' "$2" "$each" ;; esac
    done )
}
staged() {
  within=$1 index=$2
  set -- . ':(exclude,top).paddock'
  while IFS= read -r each; do
    named "$each"
    case "$called" in
      "$within") ;;
      "$within"*) called=${called#"$within"}; set -- "$@" ":(exclude,literal)${called%/}" ;;
    esac
  done < "$scratch/inner"
  ( cd -- "$top/$within" && GIT_DIR="$own" GIT_WORK_TREE="$top/$within" \\
      GIT_INDEX_FILE="$index" plain add -A --ignore-errors -- "$@" ) \\
    >/dev/null 2>"$scratch/said" || [ $? = 1 ] || { cat "$scratch/said" >&2; exit 96; }
  while IFS= read -r each; do
    case "$each" in hint:*) ;; *) printf '%s%s\\n' "${within:+$within: }" "${each#error: }" ;; esac
  done < "$scratch/said" >> "$scratch/left"
}
# What is left out now and was not then.
left_out() {
  sort -u "$scratch/left" > "$scratch/out"
  : > "$scratch/known"
  [ -z "$aside" ] || mine cat-file blob "$aside:left" > "$scratch/known" 2>/dev/null || :
  grep -vxF -f "$scratch/known" "$scratch/out" | head -n 20
}
tree_now() {
  ignore
  : > "$scratch/left"
  inner '' '' > "$scratch/inner"
  n=1
  while each=$(sed -n "${n}p" "$scratch/inner") && [ -n "$each" ]; do
    named "$each"
    inner "$called" "$each" >> "$scratch/inner"
    n=$((n + 1))
    [ "$n" -le 200 ] || exit 93
  done
  if [ -n "${1:-}" ]; then
    GIT_INDEX_FILE="$scratch/index" mine read-tree "$1" || exit 97
  elif [ -n "$repository" ]; then
    # What is tracked though it would be ignored. Ids of another kind than ours cannot be taken in.
    theirs ls-files -s -z | GIT_INDEX_FILE="$scratch/index" mine update-index -z --index-info ||
      rm -f "$scratch/index" "$scratch/index.lock"
  fi
  while IFS= read -r sub; do
    named "$sub"
    GIT_INDEX_FILE="$scratch/index" GIT_LITERAL_PATHSPECS=1 \\
      mine rm -r -f -q --cached --ignore-unmatch -- "${called%/}" </dev/null || exit 96
  done < "$scratch/inner"
  staged '' "$scratch/index"
  while IFS= read -r sub; do
    rm -f "$scratch/part"
    named "$sub"
    path=$called
    staged "$path" "$scratch/part"
    part=$(GIT_INDEX_FILE="$scratch/part" mine write-tree </dev/null) || exit 96
    GIT_INDEX_FILE="$scratch/index" mine read-tree --prefix="$path" "$part" </dev/null || exit 96
  done < "$scratch/inner"
  tree=$(GIT_INDEX_FILE="$scratch/index" mine write-tree) || exit 96
}
blob() { printf '100644 blob %s\\t%s\\n' "$(mine hash-object -w --stdin)" "$1"; }
# What is ignored by rules that are ignored themselves is known by name only.
put_aside() {
  {
    blob exclude < "$own/info/exclude"
    sort -u "$scratch/left" | blob left
    GIT_INDEX_FILE="$scratch/index" \\
      mine ls-files -o -i --exclude-standard --directory --no-empty-directory |
      sed -e '/^"/d' -e 's/[][*?\\\\]/\\\\&/g' -e 's/ $/\\\\ /' -e 's,^,/,' | blob ignored
    [ -z "$repository" ] || [ ! -f "$repository/index" ] || blob index < "$repository/index"
  } > "$scratch/aside"
  aside=$(mine mktree < "$scratch/aside") || exit 96
  mine update-ref "refs/paddock/$task/$1.aside" "$aside" || exit 96
}
marked() {
  case "$1" in
    before) mark=$2 ;;
    *) mark=$(GIT_DIR="$own" plain rev-parse -q --verify "refs/paddock/$task/$1") || exit 97 ;;
  esac
  recall "$mark"
}
settle
"""
)
KEEP = (
    _OPEN
    + """
if [ "$3" = after ]; then
  recall "$4"
  tree_now "$4"
  set -- "$@" -p "$4"
else
  top=$(pwd -P)
  mine rev-parse -q --verify "refs/paddock/$task/$3" && exit 0
  look
  cd -- "$top" || exit 91
  tree_now
fi
when=$3
shift 4
said=
if [ "$when" = after ]; then said=$(left_out); else put_aside "$when"; fi
commit=$(printf 'paddock: %s %s\\n\\npaddock-top %s\\npaddock-repository %s\\npaddock-head %s\\n'\\
'paddock-branch %s\\npaddock-aside %s\\n' \\
  "$when" "$task" "$top" "$repository" "$head" "$branch" "$aside" |
  mine commit-tree "$@" "$tree") || exit 96
if [ "$when" = after ]; then
  mine update-ref "refs/paddock/$task/$when" "$commit" || exit 96
elif ! printf 'create refs/paddock/%s/%s %s\\n' "$task" "$when" "$commit" |
    mine update-ref --stdin 2>/dev/null; then
  # Somebody else was quicker: of two it is the first, since the second may have seen more.
  commit=$(mine rev-parse -q --verify "refs/paddock/$task/$when") || exit 96
fi
printf '%s\\n%s' "$commit" "$said"
"""
)
NOW = (
    _OPEN
    + """
recall "$3"
tree_now "$3"
[ -n "$(left_out)" ] || printf %s "$tree"
"""
)
# A branch that moved is a change too. After the files comes what could not be looked at.
DRIFT = (
    _OPEN
    + """
marked "$3" "$4"
tree_now "$mark"
mine diff-tree -r -z --no-renames --name-only "$mark" "$tree" || exit 97
[ -z "$repository" ] || [ "$(theirs rev-parse -q --verify HEAD 2>/dev/null)" = "$head" ] ||
  printf 'HEAD\\0'
printf '\\0'
left_out | tr '\\n' '\\000'
"""
)
STAT = (
    _OPEN
    + """
recall "$4"
mine diff-tree -r -z --no-renames "$3" "$4" "$5" || exit 97
"""
)
DIFF = (
    _OPEN
    + """
recall "$3"
mine diff-tree -r -p --binary --no-renames --full-index --no-ext-diff --no-textconv "$3" "$4" ||
  exit 97
"""
)
# What is there now is kept first, as `reverted`: what somebody did by hand meanwhile is not lost.
# Files that were not there then are removed, but for those that were ignored then: the `.gitignore`
# files come back first, and by them is said what there is to remove. Only the branch that was
# checked out then is moved.
# The index of the user's repository is made elsewhere and put in place at the end: a lock that
# somebody has left behind is in nobody's way.
REVERT = (
    _OPEN
    + """
index_then() {
  [ -z "$aside" ] || ! mine cat-file blob "$aside:index" > "$scratch/then" 2>/dev/null ||
    ! GIT_INDEX_FILE="$scratch/then" theirs write-tree >/dev/null 2>&1 ||
    { mv -f "$scratch/then" "$scratch/theirs"; return; }
  # It names what is not there any more, or is in the midst of a merge.
  [ -z "$head" ] || GIT_INDEX_FILE="$scratch/theirs" theirs read-tree "$head" || exit 96
}
at_mark() { GIT_INDEX_FILE="$scratch/then" mine "$@"; }
rules_then() {
  rules=':(top,glob)**/.gitignore' all_rules=1
  at_mark read-tree "$mark" && at_mark ls-files -s -z -- "$rules" > "$scratch/rules" &&
    at_mark read-tree "$tree" && at_mark rm -r -f -q --cached --ignore-unmatch -- "$rules" &&
    at_mark update-index --replace -z --index-info < "$scratch/rules" &&
    first=$(at_mark write-tree) &&
    GIT_INDEX_FILE="$scratch/index" mine read-tree -u --reset "$first" &&
    cp "$scratch/index" "$scratch/first" || exit 96
  tree_now "$mark"
  # What these rules show and the agent's did not is not kept: it is not removed either.
  mine diff-tree -r -z --no-renames --diff-filter=D --name-only "$first" "$tree" \\
      > "$scratch/stays" &&
    mv -f "$scratch/first" "$scratch/index" &&
    GIT_INDEX_FILE="$scratch/index" mine update-index -z --force-remove --stdin \\
      < "$scratch/stays" || exit 96
}
marked "$3" "$4"
[ -z "$legacy" ] || ! mine ls-tree -r "$mark" | grep -q '^160000 ' || exit 97
name="refs/paddock/$task/reverted-$(date +%s)-$$" was= is_there=
if [ -n "$repository" ]; then
  common=$(theirs rev-parse --git-common-dir 2>/dev/null) && {
    if [ -z "$head" ] || theirs rev-parse -q --verify "$head^{tree}" >/dev/null; then is_there=1; fi
    for lock in "$repository/HEAD" "$common/${branch:-HEAD}" "$common/packed-refs"; do
      [ ! -e "$lock.lock" ] || { printf '%s' "$lock.lock" >&2; exit 94; }
    done
    was=$(theirs rev-parse -q --verify HEAD) || was=
  }
fi
[ -z "$is_there" ] || index_then
tree_now "$mark"
now=$(printf 'paddock: reverted %s\\n' "$task" | mine commit-tree -p "$mark" "$tree") || exit 96
mine update-ref "$name" "$now" || exit 96
[ -z "$(mine diff-tree -r --diff-filter=A --name-only "$mark" "$tree")" ] || rules_then
GIT_INDEX_FILE="$scratch/index" mine read-tree -u --reset "$mark" || exit 96
if [ -n "$is_there" ]; then
  [ -z "$was" ] || theirs update-ref "$name" "$was" || exit 96
  [ -z "$branch" ] || theirs symbolic-ref HEAD "$branch" || exit 96
  if [ -n "$head" ]; then
    theirs update-ref --no-deref "${branch:-HEAD}" "$head" || exit 96
  elif [ -n "$branch" ]; then
    theirs update-ref --no-deref -d "$branch" 2>/dev/null
  fi
  if [ -f "$scratch/theirs" ]; then
    cp "$scratch/theirs" "$repository/paddock-index.$$" &&
      mv -f "$repository/paddock-index.$$" "$repository/index" || exit 96
  elif [ -n "$branch" ]; then
    rm -f "$repository/index"
  fi
fi
printf %s "$now"
[ -z "$repository" ] || [ -n "$is_there" ] || printf '\\n%s' "$repository"
"""
)
APPLY = (
    _OPEN
    + """
look
cd -- "$top" || exit 91
cat > "$scratch/patch"
[ -s "$scratch/patch" ] || exit 0
mine apply --check --whitespace=nowarn "$scratch/patch" 2>"$scratch/said" || {
  # It may have been brought before, by somebody who could not say so any more.
  mine apply -R --check "$scratch/patch" 2>/dev/null && exit 0
  cat "$scratch/said" >&2
  exit 98
}
mine apply --whitespace=nowarn "$scratch/patch" || exit 98
"""
)
# All that is kept in this home, whichever directory it is of: when, and of which task.
LIST = (
    _ALONE
    + """
for own in "$HOME"/.paddock/trees/*.git; do
  [ -d "$own/objects" ] || continue
  settle
  GIT_DIR="$own" plain for-each-ref --format='%(creatordate:unix) %(refname)' refs/paddock/
done
"""
)
# Names of tasks, one a line. What somebody may be about to refer to is younger than `$1`.
PRUNE = (
    _ALONE
    + """
gone=$(cat)
for own in "$HOME"/.paddock/trees/*.git; do
  [ -d "$own/objects" ] || continue
  settle
  printf '%s\\n' "$gone" | while IFS= read -r task; do
    [ -z "$task" ] ||
      GIT_DIR="$own" plain for-each-ref --format='delete %(refname)' "refs/paddock/$task/"
  done | GIT_DIR="$own" plain update-ref --stdin || exit 96
  GIT_DIR="$own" plain prune --expire="$1" || exit 96
done
"""
)

#!/bin/sh
# The command line as a user meets it: the bundled model answers, flags that promise the same bits give them, what is
# wrong is refused with a sentence and the promised exit status. DAY0_BINARY is the program; under the command
# DAY0_EMULATOR, such as an emulator of an old machine, it must give the same bits.
set -u
day0=${DAY0_BINARY:-./day0}
jargon=models/jargon-k31
folder=$(mktemp -d "${TMPDIR:-/tmp}/day0-cli.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0 skipped=0

# check NAME COMMAND...: passes if the command succeeds.
check() {
    name=$1
    shift
    if "$@" >"$folder/out" 2>"$folder/err"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name: $*"
        sed 's/^/    /' "$folder/err"
    fi
}

# refuses STATUS COMMAND...: that exit status, nothing on standard output, one line on standard error.
refuses() {
    wanted=$1 status=0
    shift
    "$@" >"$folder/refused.out" 2>"$folder/refused.err" || status=$?
    [ "$status" -eq "$wanted" ] && [ ! -s "$folder/refused.out" ] && [ "$(wc -l <"$folder/refused.err")" -eq 1 ] &&
        return
    echo "exit status $status, $(cat "$folder/refused.err")" >&2
    return 1
}

answers() {
    "$day0" run --temp 0 -n 16 "$@" </dev/null >"$folder/answer" && [ "$(wc -w <"$folder/answer")" -gt 4 ]
}

same_bits() {
    "$day0" logits -m "$jargon" --tokens "$folder/ids" --out "$folder/other.f32" "$@" &&
        cmp "$folder/logits.f32" "$folder/other.f32"
}

# shellcheck disable=SC2086 # a command with its arguments
emulated_bits() {
    head -n 20 "$folder/ids" >"$folder/few" &&
        $DAY0_EMULATOR "$day0" logits -m "$jargon" --tokens "$folder/few" --out "$folder/few.f32" --threads 1 &&
        cmp -n "$(wc -c <"$folder/few.f32")" "$folder/logits.f32" "$folder/few.f32"
}

comes_back() {
    "$day0" tokenize -f "$jargon/eval.txt" >"$folder/ids.txt" &&
        "$day0" tokenize --decode -f "$folder/ids.txt" | cmp - "$jargon/eval.txt"
}

renders() {
    echo '{"messages": [{"role": "user", "content": "Hi <|sep|>"}]}' | "$day0" render --request - | grep -q 'Hi <|sep|>'
}

check "help" "$day0" --help
for command in run logits tokenize render; do
    check "help of $command" "$day0" "$command" --help
done
check "no command" refuses 2 "$day0" dance
check "unknown flag" refuses 2 "$day0" run --dance
check "flag out of range" refuses 2 "$day0" run --temp -1
check "no model" refuses 1 "$day0" run -m "$folder/nowhere" -p Hi
check "answers the sample question" answers
check "answers a question" answers -p "What is a kluge?"
check "continues a text" answers --raw -p "hacker: n."
check "render" renders
check "tokenize and back" comes_back

head -c 600 tests/golden/jargon/tokens.txt | tr ' ' '\n' | head -n 100 >"$folder/ids"
check "logits" "$day0" logits -m "$jargon" --tokens "$folder/ids" --out "$folder/logits.f32"
check "logits, plain C" same_bits --cpu ref
check "logits, one thread" same_bits --threads 1
check "logits, three threads" same_bits --threads 3
check "logits, eager" same_bits --exec eager
check "logits, pieces" same_bits --pieces 1,7,30
check "logits, token by token" same_bits --stepwise
if [ -n "${DAY0_EMULATOR:-}" ]; then
    check "logits, emulated" emulated_bits
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

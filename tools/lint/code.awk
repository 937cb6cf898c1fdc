# Prints C without comments and without the insides of strings, as `file:line:code`.
FNR == 1 { in_comment = 0 }
{
    rest = $0; code = ""
    while (rest != "") {
        if (in_comment) {
            at = index(rest, "*/")
            if (at == 0)
                break
            in_comment = 0
            rest = substr(rest, at + 2)
        } else if (!match(rest, /\/\*|\/\/|"|'/)) {
            code = code rest
            break
        } else {
            mark = substr(rest, RSTART, RLENGTH)
            code = code substr(rest, 1, RSTART - 1)
            rest = substr(rest, RSTART + RLENGTH)
            if (mark == "//")
                break
            if (mark == "/*") {
                in_comment = 1
            } else if (is_include(code)) {
                code = code mark rest
                break
            } else {
                code = code mark mark
                rest = after_quote(rest, mark)
            }
        }
    }
    if (code ~ /[^ ]/)
        printf "%s:%d:%s\n", FILENAME, FNR, code
}
function is_include(code) { return code ~ /^ *# *include *$/ }
function after_quote(text, quote,    i, c) {
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "\\")
            i++
        else if (c == quote)
            return substr(text, i + 1)
    }
    return ""
}

# eval "$(fedclust completion bash)"
_fedclust() {
    local line="${COMP_LINE:0:COMP_POINT}" before="" IFS=$'\n'
    local word="${line##* }"
    # what stands before the last = or : of a word is a word of its own for bash
    [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && before="${word%"${word##*=}"}"
    [[ ${word#"$before"} == *:* && $COMP_WORDBREAKS == *:* ]] && before="${word%"${word##*:}"}"
    COMPREPLY=($("${COMP_WORDS[0]}" completion --line "$line" 2>/dev/null | cut -f1))
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    # a finished word is followed by a space, the beginning of one is not
    local i
    for i in "${!COMPREPLY[@]}"; do
        [[ ${COMPREPLY[i]} == *[=./] ]] || COMPREPLY[i]+=" "
    done
}
complete -o nospace -o bashdefault -o default -F _fedclust fedclust

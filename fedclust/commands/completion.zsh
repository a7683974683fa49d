#compdef fedclust
# eval "$(fedclust completion zsh)", after compinit
_fedclust() {
    local -a lines begun finished begun_shown finished_shown
    local line word
    lines=("${(@f)$("${words[1]}" completion --line "${words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    for line in $lines; do
        word="${line%%$'\t'*}"
        if [[ $word == *[=./] ]]; then
            begun+=("$word") begun_shown+=("${line/$'\t'/  }")
        else
            finished+=("$word") finished_shown+=("${line/$'\t'/  }")
        fi
    done
    if (( ! $#begun && ! $#finished )); then
        compset -P '*='
        _files
        return
    fi
    (( $#begun )) && compadd -l -S '' -d begun_shown -a begun
    (( $#finished )) && compadd -l -d finished_shown -a finished
    return 0
}
compdef _fedclust fedclust

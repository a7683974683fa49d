# fedclust completion fish > ~/.config/fish/completions/fedclust.fish
function __fedclust
    set -l words (commandline -opc)
    $words[1] completion --line (commandline -cp) 2>/dev/null
end
complete -c fedclust -f -a '(__fedclust)'
complete -c fedclust -n '__fish_seen_subcommand_from report' -F

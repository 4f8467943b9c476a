# Completion of sealpoint's commands and options for bash; source it, or install it as
# share/bash-completion/completions/sealpoint. The words stand in `sealpoint help`: nothing to keep in step.

_sealpoint() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]}
	COMPREPLY=()

	if ((COMP_CWORD == 1)) || [[ $command == help && $COMP_CWORD -eq 2 ]]; then
		local words
		words=$("$program" help 2>/dev/null | sed -n '/^To /,/^$/s/^  \([a-z-]*\) .*/\1/p')
		mapfile -t COMPREPLY < <(compgen -W "$words help --help --version" -- "$word")
		return
	fi
	case $previous in
	-D | --images-dir | -W | --work-dir | --prev-images-dir)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		return
		;;
	-o | --output | --pidfile | --parent | --plot | --log-file | --action-script | --config)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	--compress)
		mapfile -t COMPREPLY < <(compgen -W "none 1 3 9 19" -- "$word")
		return
		;;
	--backend)
		mapfile -t COMPREPLY < <(compgen -W "scan soft-dirty" -- "$word")
		return
		;;
	--pid)
		mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && printf '%s\n' [0-9]*)" -- "$word")
		return
		;;
	--timeout | --unlinked-limit | --external | --inherit-fd | --every | --share | --keep | --max-chain | -n | --count | -i | --interval)
		return
		;;
	esac
	if [[ $word == -* ]]; then
		local options
		options=$("$program" help "$command" 2>/dev/null |
			sed -n '/^Options:/,/^$/s/^  \(-[a-zA-Z],\|   \) \(--[a-z-]*\).*/\2/p')
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
		return
	fi
	case $command in
	dump | pre-dump | snapshot | watch)
		mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && printf '%s\n' [0-9]*)" -- "$word")
		;;
	track)
		local words="start status stop"
		((COMP_CWORD == 2)) || words=$(cd /proc && printf '%s\n' [0-9]*)
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
		;;
	criu)
		mapfile -t COMPREPLY < <(compgen -W "check cpuinfo dedup dump pre-dump restore" -- "$word")
		;;
	inspect)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -W "$(cd /proc && printf '%s\n' [0-9]*)" -- "$word")
		;;
	restore | unlock | verify | core | merge | diff)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		;;
	esac
}

complete -F _sealpoint sealpoint

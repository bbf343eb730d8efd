"""`headwater completion bash|zsh|fish`: the shell's completion script, made from the commands' own parsers."""

from __future__ import annotations

import argparse

from headwater.cli.main import COMMANDS, load

HELP = "print the shell completion script"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = 'bash: eval "$(headwater completion bash)"; fish: headwater completion fish | source'
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def run(arguments: argparse.Namespace) -> int:
    words = {name: _words(name) for name in COMMANDS}
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](words))
    return 0


def _words(name: str) -> list[str]:
    """The options, and the sub-commands, that a command takes."""
    if name == "completion":
        return ["bash", "zsh", "fish"]
    parser = argparse.ArgumentParser(add_help=False)
    load(name).add_arguments(parser)
    options = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    return [*options, *_subcommands(parser)]


def _subcommands(parser: argparse.ArgumentParser) -> list[str]:
    return [str(word) for action in parser._actions if isinstance(action.choices, dict) for word in action.choices]


def _bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(f'    {name}) found="{" ".join(found)}" ;;' for name, found in words.items())
    return f"""_headwater() {{
  local found current="${{COMP_WORDS[COMP_CWORD]}}"
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then found="{" ".join(words)}"; fi
  COMPREPLY=($(compgen -W "$found" -- "$current"))
}}
complete -o default -F _headwater headwater"""


def _zsh(words: dict[str, list[str]]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(words)


def _fish(words: dict[str, list[str]]) -> str:
    lines = [f'complete -c headwater -n __fish_use_subcommand -a {name} -d "{COMMANDS[name]}"' for name in words]
    for name, found in words.items():
        lines += [f'complete -c headwater -n "__fish_seen_subcommand_from {name}" -a "{" ".join(found)}"']
    return "\n".join(lines)

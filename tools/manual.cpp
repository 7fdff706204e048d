// `lanewise manual` and `lanewise completion`: the man page and the completion of bash, both written from the same
// description of the command line that parses it, so neither can be stale. The build runs them.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "command.hpp"
#include "lanewise/lanewise.h"

namespace lanewise::tools {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) commands.push_back(command);
  }
  return commands;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

// troff: a backslash and a dash mean something, a point or quote at a line's begin too.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\n.br\n";
    } else if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (escaped.empty() || escaped.back() == '\n')) escaped += "\\&";
      escaped += c;
    }
  }
  return escaped;
}

std::vector<std::string> flags_of(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_snames()) flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flags.push_back("--" + name);
  return flags;
}

void print_option(const CLI::Option& option) {
  std::string line;
  for (const std::string& flag : flags_of(option)) line += (line.empty() ? "\\fB" : ", \\fB") + roff(flag) + "\\fR";
  if (option.get_positional() && option.get_option_text().empty()) {
    line = "\\fI" + roff(option.get_name(true)) + "\\fR";
  }
  if (!option.get_option_text().empty()) line += " \\fI" + roff(option.get_option_text()) + "\\fR";
  std::printf(".TP\n%s\n%s\n", line.c_str(), roff(option.get_description()).c_str());
}

void print_command(const CLI::App& command) {
  std::printf(".SS \"lanewise %s\"\n%s.\n", roff(command.get_name()).c_str(), roff(command.get_description()).c_str());
  std::string group;
  for (const CLI::Option* option : options_of(command)) {
    if (option->get_group() != group) {
      group = option->get_group();
      std::printf(".PP\n%s:\n", roff(group).c_str());
    }
    print_option(*option);
  }
  if (!command.get_footer().empty()) std::printf(".PP\n%s\n", roff(command.get_footer()).c_str());
}

int manual(const CLI::App& app) {
  std::printf(".\\\" Written by `lanewise manual`.\n.TH LANEWISE 1 \"\" \"lanewise %d.%d.%d\" \"User Commands\"\n",
              LW_VERSION_MAJOR, LW_VERSION_MINOR, LW_VERSION_PATCH);
  std::printf(".SH NAME\nlanewise \\- scaled dot\\-product attention on CPUs, from files to files\n");
  std::printf(".SH SYNOPSIS\n.nf\n");
  for (const CLI::App* command : commands_of(app)) {
    std::printf("\\fBlanewise %s\\fR [\\fIOPTIONS\\fR]", roff(command->get_name()).c_str());
    for (const CLI::Option* option : options_of(*command)) {
      if (option->get_positional()) std::printf(" [\\fI%s\\fR]", roff(option->get_name(true)).c_str());
    }
    std::printf("\n");
  }
  std::printf(".fi\n.SH DESCRIPTION\n%s.\n", roff(app.get_description()).c_str());
  std::printf(
      "Everything that the lanewise library computes can be asked for on files (safetensors or npy), without a line of "
      "code. A result has the same bits on every instruction set with fused multiply\\-add and for any number of "
      "threads.\n");
  std::printf(".SH OPTIONS\n");
  for (const CLI::Option* option : options_of(app)) print_option(*option);
  std::printf(".SH COMMANDS\n");
  for (const CLI::App* command : commands_of(app)) print_command(*command);
  std::printf(
      ".SH ENVIRONMENT\n.TP\nLANEWISE_TARGET\nThe instruction set to use, one of those that \\fBlanewise info\\fR "
      "lists. An option given on the command line goes before it.\n.TP\nOMP_NUM_THREADS\nThreads where \\-\\-threads "
      "is not given.\n");
  std::printf(
      ".SH \"EXIT STATUS\"\n.TP\n0\nGood.\n.TP\n1\nA check that was asked for failed.\n.TP\n2\nWrong input: one line "
      "on "
      "standard error says what. No file was written.\n.PP\nA signal ends the command as it ends any other (130 in a "
      "shell "
      "for an interrupt, 143 for SIGTERM); an output that is not complete is removed.\n");
  return kSuccess;
}

// The words of an option's text "a|b|c"; empty where it says something else.
std::string choices_of(const CLI::Option& option) {
  std::string words = option.get_option_text();
  if (words.find('|') == std::string::npos) return "";
  for (char& c : words) {
    if (c == '|') c = ' ';
    if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != ' ' && c != '_') return "";
  }
  return words;
}

int completion(const CLI::App& app) {
  std::printf("# bash completion of lanewise. Written by `lanewise completion`.\n_lanewise() {\n");
  std::printf("  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options=\n  COMPREPLY=()\n");
  std::printf("  if [ \"$COMP_CWORD\" = 1 ]; then\n    options=\"");
  for (const CLI::App* command : commands_of(app)) std::printf("%s ", command->get_name().c_str());
  std::printf("--help --version\"\n    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n    return\n  fi\n");
  std::printf("  case ${COMP_WORDS[1]}:$previous in\n");
  for (const CLI::App* command : commands_of(app)) {
    for (const CLI::Option* option : options_of(*command)) {
      const std::string words = choices_of(*option);
      const std::vector<std::string> flags = flags_of(*option);
      if (words.empty() || flags.empty()) continue;
      std::printf("    %s:%s) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", command->get_name().c_str(),
                  flags.back().c_str(), words.c_str());
    }
  }
  std::printf(
      "    *:--target)\n      COMPREPLY=($(compgen -W \"$(\"$1\" info 2>/dev/null | sed -n 's/^target \\([^:]*\\): "
      "supported.*/\\1/p')\" -- \"$word\"))\n      return ;;\n  esac\n  case ${COMP_WORDS[1]} in\n");
  for (const CLI::App* command : commands_of(app)) {
    std::printf("    %s) options=\"", command->get_name().c_str());
    const char* separator = "";
    for (const CLI::Option* option : options_of(*command)) {
      for (const std::string& flag : flags_of(*option)) {
        std::printf("%s%s", separator, flag.c_str());
        separator = " ";
      }
    }
    std::printf("\" ;;\n");
  }
  std::printf(
      "  esac\n  case $word in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n    *) "
      "COMPREPLY=($(compgen -f -- \"$word\")) ;;\n  esac\n}\ncomplete -o filenames -F _lanewise lanewise\n");
  return kSuccess;
}

}  // namespace

void add_manual(CLI::App& app, Action& chosen) {
  app.add_subcommand("manual", "The man page")->group("")->callback([&app, &chosen] {
    chosen = [&app] { return manual(app); };
  });
  app.add_subcommand("completion", "The completion of bash")->group("")->callback([&app, &chosen] {
    chosen = [&app] { return completion(app); };
  });
}

}  // namespace lanewise::tools

// The `lanewise` command: reads the command line, runs one subcommand, turns errors into one line on stderr and an exit
// code.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "command.hpp"
#include "io/file.hpp"
#include "io/tensor.hpp"
#include "lanewise/lanewise.h"

namespace {

using lanewise::tools::Action;

int report(const std::string& command, std::string text, int code) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", command.c_str(), text.c_str());
  return code;
}

// What CLI11 has to say, with what is allowed. A command that does not exist leaves it saying that one is missing.
std::string text_of(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const bool missing = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
  if (missing && app.get_subcommands().empty()) {
    std::string names;
    for (const CLI::App* command : app.get_subcommands(nullptr))
      if (!command->get_group().empty()) names += (names.empty() ? "" : ", ") + command->get_name();
    const std::string given =
        argc > 1 ? "there is no command " + lanewise::io::quote(argv[1]) : std::string("a command is needed");
    return given + "; there are " + names + " (--help tells more)";
  }
  std::string text = error.what();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    text = "not expected:";  // CLI11 lists them from the last to the first
    for (const std::string& argument : app.remaining(true)) text += " " + argument;
  }
  const std::string unreadable = "Could not convert: ";
  if (text.rfind(unreadable, 0) == 0)
    text = text.substr(unreadable.size()) + ": a number of its kind and size is needed";
  return text + " (--help lists what is allowed)";
}

// "lanewise attend" where a subcommand was recognised.
std::string name_of(const CLI::App& app) {
  const auto used = app.get_subcommands();
  return used.empty() ? "lanewise" : "lanewise " + used.front()->get_name();
}

int run(int argc, char** argv) {
  CLI::App app("Scaled dot-product attention on CPUs: out = softmax(scale q k^T + rules) v", "lanewise");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::to_string(LW_VERSION_MAJOR) + "." + std::to_string(LW_VERSION_MINOR) + "." +
                                        std::to_string(LW_VERSION_PATCH));
  app.footer("lanewise SUBCOMMAND --help tells more. Exit codes: 0 good, 1 a check failed, 2 wrong input.");
  Action action;
  lanewise::tools::add_attend(app, action);
  lanewise::tools::add_merge(app, action);
  lanewise::tools::add_append(app, action);
  lanewise::tools::add_explain(app, action);
  lanewise::tools::add_info(app, action);
  lanewise::tools::add_manual(app, action);
  lanewise::tools::add_scale_study(app, action);
  lanewise::tools::add_selftest(app, action);
  lanewise::tools::add_weights(app, action);
  lanewise::tools::add_worked_example(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help and --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    return report(name_of(app), text_of(app, error, argc, argv), lanewise::tools::kWrongInput);
  }
  try {
    const int code = action();
    if (std::fflush(stdout) != 0)
      return report(name_of(app), "standard output cannot be written", lanewise::tools::kWrongInput);
    return code;
  } catch (const lanewise::io::Error& error) {
    return report(name_of(app), error.what(), lanewise::tools::kWrongInput);
  } catch (const std::bad_alloc&) {
    return report(name_of(app), "out of memory", lanewise::tools::kWrongInput);
  } catch (const std::system_error& error) {  // no thread to be had
    return report(name_of(app), error.what(), lanewise::tools::kWrongInput);
  } catch (const std::exception& error) {
    return report(name_of(app), std::string("internal error: ") + error.what(), lanewise::tools::kCheckFailed);
  }
}

// CLI11's validators are objects that exist before main, and allocate: an exception there ends in terminate, which would
// abort. Runs before all of them.
[[gnu::constructor(101)]] void end_cleanly_without_memory() {
  std::set_terminate([] {
    try {
      if (std::current_exception()) throw;
    } catch (const std::bad_alloc&) {
      std::fputs("lanewise: out of memory\n", stderr);
      std::_Exit(lanewise::tools::kWrongInput);
    } catch (...) {
      std::fputs("lanewise: internal error: an exception nobody caught\n", stderr);
    }
    std::abort();
  });
}

}  // namespace

int main(int argc, char** argv) {
  lanewise::io::remove_unfinished_on_signals();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return report("lanewise", "out of memory", lanewise::tools::kWrongInput);
  } catch (const std::exception& error) {  // no memory for the command line itself
    return report("lanewise", error.what(), lanewise::tools::kWrongInput);
  }
}

// What the subcommands share: how they are added to the command line, exit codes, terminal output.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace lanewise::tools {

// Exit codes. Wrong input throws io::Error, which main turns into one line on stderr and kWrongInput.
enum ExitCode : int { kSuccess = 0, kCheckFailed = 1, kWrongInput = 2 };

// Each adds a subcommand to the command line; on success of the parse, `chosen` is set to what runs it and returns the
// exit code.
using Action = std::function<int()>;
void add_append(CLI::App& app, Action& chosen);
void add_attend(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_info(CLI::App& app, Action& chosen);
void add_manual(CLI::App& app, Action& chosen);  // and completion; listed nowhere: for the build
void add_merge(CLI::App& app, Action& chosen);
void add_scale_study(CLI::App& app, Action& chosen);
void add_selftest(CLI::App& app, Action& chosen);
void add_weights(CLI::App& app, Action& chosen);
void add_worked_example(CLI::App& app, Action& chosen);

// Set to its number by SIGINT (Ctrl-C), SIGTERM or SIGHUP once catch_interrupts was called, for long work to stop at; the
// second one ends the process as usual. Then end_by_signal: what a parent sees is the end by that signal.
const volatile int32_t* interrupted();
void catch_interrupts();
int end_by_signal();

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
std::string bytes_text(double bytes);      // "12.0 KiB"
std::string seconds_text(double seconds);  // "3.21 ms"

// A line on the terminal that shows how far long work is; nothing where stderr is no terminal or `quiet`.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine();  // clears the line
  bool enabled() const { return enabled_; }
  void show(const std::string& text);

 private:
  bool enabled_;
  bool shown_ = false;
};

}  // namespace lanewise::tools

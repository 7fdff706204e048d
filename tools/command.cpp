#include "command.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace lanewise::tools {
namespace {

volatile int32_t interrupt_flag = 0;

extern "C" void on_interrupt(int signal) {
  interrupt_flag = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

const volatile int32_t* interrupted() { return &interrupt_flag; }

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, on_interrupt) == SIG_IGN) std::signal(signal, SIG_IGN);  // by nohup, for one
  }
}

int end_by_signal() {
  std::fflush(stdout);
  std::signal(interrupt_flag, SIG_DFL);
  std::raise(interrupt_flag);
  return 128 + interrupt_flag;  // not reached, but where the signal is blocked
}

std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return format(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return format("%.2f us", seconds * 1e6);
  if (seconds < 1) return format("%.2f ms", seconds * 1e3);
  return format("%.2f s", seconds);
}

ProgressLine::ProgressLine(bool quiet) {
  const char* terminal = std::getenv("TERM");
  enabled_ = !quiet && ::isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string(terminal) != "dumb";
}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(const std::string& text) {
  if (!enabled_) return;
  shown_ = true;
  std::fprintf(stderr, "\r%s\033[K", text.c_str());
  std::fflush(stderr);
}

}  // namespace lanewise::tools

#include "command.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace lanewise::test {

Outcome lanewise_command(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                         const std::function<void(pid_t)>& meanwhile) {
  const TempDir dir;
  const std::string out = dir / "out", err = dir / "err";
  std::vector<char*> argv = {const_cast<char*>("lanewise")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::string& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t process = 0;
  const int failed = ::posix_spawn(&process, LANEWISE_COMMAND, &actions, nullptr, argv.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error(std::string(LANEWISE_COMMAND) + " cannot be started");
  meanwhile(process);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error("waitpid failed");
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return {code, read_bytes(out), read_bytes(err)};
}

bool is_one_clear_line(const std::string& err) {
  return err.rfind("lanewise", 0) == 0 && err.find(": ") != std::string::npos && err.find('\n') == err.size() - 1;
}

std::string data_file(const std::string& name) { return std::string(LANEWISE_TEST_DATA) + "/" + name; }

}  // namespace lanewise::test

//go:build darwin || linux

package postgres

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// programs is the directory of PostgreSQL's programs.
type programs string

// packaged matches the directories in which Debian installs each version.
const packaged = "/usr/lib/postgresql/*/bin"

// findPrograms returns dir, or else the directory in the environment, or else the newest
// directory that matches the pattern, or else the directory of pg_config. The error says how
// to install PostgreSQL.
func findPrograms(dir, pattern string) (programs, error) {
	const variable = "REPRISE_TEST_POSTGRES_BIN"
	if env := os.Getenv(variable); dir == "" && env != "" {
		if missing := programs(env).missing(); missing != "" {
			return "", fmt.Errorf("%s is %q, which has no %s; set it to the directory of PostgreSQL's programs", variable, env, missing)
		}
		return programs(env), nil
	}
	if dir != "" {
		if missing := programs(dir).missing(); missing != "" {
			return "", fmt.Errorf("Config.Bin is %q, which has no %s; set it to the directory of PostgreSQL's programs", dir, missing)
		}
		return programs(dir), nil
	}
	candidates, _ := filepath.Glob(pattern) // the pattern is valid
	slices.SortFunc(candidates, func(a, b string) int { return debianVersion(b) - debianVersion(a) })
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	for _, c := range candidates {
		if programs(c).missing() == "" {
			return programs(c), nil
		}
	}
	return "", fmt.Errorf("PostgreSQL is not installed: on Debian run scripts/servers as root; "+
		"elsewhere install PostgreSQL 13 or later and set %s to the directory of its programs", variable)
}

// missing returns the first required program that does not exist, or "".
func (p programs) missing() string {
	for _, name := range []string{"initdb", "postgres", "psql"} {
		if _, err := exec.LookPath(p.path(name)); err != nil {
			return name
		}
	}
	return ""
}

func (p programs) path(name string) string { return filepath.Join(string(p), name) }

// debianVersion returns 15 for /usr/lib/postgresql/15/bin.
func debianVersion(bin string) int {
	v, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin))) // 0, the oldest, for a directory without a version
	return v
}

// command returns a command that gets none of the caller's PG* variables and prints English
// messages.
func (p programs) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path(name), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") })
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	return cmd
}

// serverCommand is command for a program that runs in the server's directory as its owner.
func (p programs) serverCommand(dir *directory, name string, args ...string) *exec.Cmd {
	cmd := p.command(context.Background(), name, args...)
	cmd.Dir = dir.data
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: dir.account}
	return cmd
}

// initdb makes a cluster in dir.
func (p programs) initdb(dir *directory) error {
	var out process.Tail
	cmd := p.serverCommand(dir, "initdb", "-D", dir.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	making, err := process.Start(cmd, &out, death)
	if err != nil {
		return err
	}
	if err := making.Wait(); err != nil {
		return fmt.Errorf("initdb: %w:\n%s", err, &out)
	}
	return nil
}

// postgres returns the command that runs the server on dir.
func (p programs) postgres(dir *directory, port int) *exec.Cmd {
	return p.serverCommand(dir, "postgres", "-D", dir.data, "-h", "127.0.0.1", "-p", strconv.Itoa(port),
		"-k", "") // a path in a long temporary directory can be too long for a socket
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// configuration returns the lines to append to postgresql.conf. They are not passed on the
// command line, because that takes precedence over ALTER SYSTEM.
func configuration(settings map[string]string) (string, error) {
	all := map[string]string{
		"fsync":               "off",
		"max_connections":     "400",
		"password_encryption": "scram-sha-256", // not the default in 13
	}
	maps.Copy(all, settings)
	if _, ok := settings["full_page_writes"]; !ok {
		all["full_page_writes"] = all["fsync"]
	}
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !settingName.MatchString(name) {
			return "", fmt.Errorf("Config.Settings has %q, which is no name of a setting", name)
		}
		if strings.ContainsAny(all[name], "\n\x00") {
			return "", fmt.Errorf("Config.Settings[%q] has more than one line", name)
		}
		fmt.Fprintf(&conf, "%s = %s\n", name, literal(strings.ReplaceAll(all[name], `\`, `\\`)))
	}
	return conf.String(), nil
}

// literal returns s as an SQL string, which is also the format of postgresql.conf.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// identifier returns s as an SQL name.
func identifier(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

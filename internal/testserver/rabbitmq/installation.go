//go:build darwin || linux

package rabbitmq

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// installation is the location of the programs of a release.
type installation struct {
	release Release
	root    string // the Debian that contains them, "" for this machine
	sbin    string // the directory of rabbitmq-server and rabbitmqctl, below root
	epmd    string // likewise
	erlang  string // a pattern of Erlang's modules, likewise
}

// packaged matches the directories in which Debian installs each version, below its root. The
// programs in /usr/sbin are wrappers that run as a separate user on the machine's data.
const packaged = "/usr/lib/rabbitmq/lib/rabbitmq_server-%d.*/sbin"

// debianVariable names the Debian 13 that is used instead of the one in the cache.
const debianVariable = "REPRISE_TEST_DEBIAN13"

func (r Release) variable() string {
	if r == V4 {
		return "REPRISE_TEST_RABBITMQ4_BIN"
	}
	return "REPRISE_TEST_RABBITMQ_BIN"
}

func (r Release) major() int {
	if r == V4 {
		return 4
	}
	return 3
}

// find returns the installation of a release. The error says how to install it.
func find(r Release) (installation, error) {
	if r != V3 && r != V4 {
		return installation{}, fmt.Errorf("Config.Release is %d, which is none", int(r))
	}
	if sbin := os.Getenv(r.variable()); sbin != "" {
		if !filepath.IsAbs(sbin) {
			return installation{}, fmt.Errorf("%s is %q; set it to an absolute path, since each test has a separate directory", r.variable(), sbin)
		}
		if missing := missing(sbin); missing != "" {
			return installation{}, fmt.Errorf("%s is %q, which has no %s; set it to the directory of the programs of %v", r.variable(), sbin, missing, r)
		}
		return onThisMachine(r, sbin)
	}
	if sbin := newest("", r); sbin != "" {
		return onThisMachine(r, sbin)
	}
	debian := ""
	if r == V4 {
		var err error
		if debian, err = debian13(); err != nil {
			return installation{}, err
		}
		if sbin := newest(debian, r); sbin != "" {
			return inDebian(r, debian, sbin)
		}
		debian = " nor in " + debian
	}
	return installation{}, fmt.Errorf("%v is not installed on this machine%s: on Debian 12 run scripts/servers as root; elsewhere install it "+
		"and set %s to its directory sbin", r, debian, r.variable())
}

func onThisMachine(r Release, sbin string) (installation, error) {
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return installation{}, fmt.Errorf("Erlang's epmd, which comes with %v, is not in the PATH: %w", r, err)
	}
	program, err := filepath.EvalSymlinks(epmd)
	if err != nil {
		return installation{}, fmt.Errorf("Erlang's epmd: %w", err)
	}
	return installation{release: r, sbin: sbin, epmd: epmd, erlang: modulesBeside(program)}, nil
}

// modulesBeside returns the pattern of the modules of the Erlang that has a program, which is
// in the directory bin of the Erlang or of its runtime system.
func modulesBeside(program string) string {
	home := filepath.Dir(filepath.Dir(program))
	if strings.HasPrefix(filepath.Base(home), "erts-") {
		home = filepath.Dir(home)
	}
	return filepath.Join(home, "lib", "*", "ebin", "*.beam")
}

// inDebian returns the installation in a Debian below this one, which only root can enter.
func inDebian(r Release, root, sbin string) (installation, error) {
	if os.Geteuid() != 0 {
		return installation{}, fmt.Errorf("%v is in %s, where only root can start it: become root, or install it on this machine and set %s "+
			"to the directory of its programs", r, root, r.variable())
	}
	return installation{release: r, root: root, sbin: sbin, epmd: "/usr/bin/epmd", erlang: modulesBeside("/usr/lib/erlang/bin/epmd")}, nil
}

// debian13 returns the directory in which scripts/servers makes a Debian 13.
func debian13() (string, error) {
	if root := os.Getenv(debianVariable); root != "" {
		if !filepath.IsAbs(root) {
			return "", fmt.Errorf("%s is %q; set it to an absolute path, since each test has a separate directory", debianVariable, root)
		}
		return root, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for Debian 13, set %s to one: %w", debianVariable, err)
	}
	return filepath.Join(cache, "reprise", "debian13"), nil
}

// newest returns the programs of the newest version of a release that Debian has installed
// below a root, or "".
func newest(root string, r Release) string {
	found, _ := filepath.Glob(root + fmt.Sprintf(packaged, r.major())) // root itself is a pattern only if it is an odd one
	found = slices.DeleteFunc(found, func(sbin string) bool { return missing(sbin) != "" })
	if len(found) == 0 {
		return ""
	}
	return strings.TrimPrefix(slices.MaxFunc(found, func(a, b string) int { return slices.Compare(version(a), version(b)) }), root)
}

// version returns 3, 10, 8 for /usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin.
func version(sbin string) []int {
	_, text, _ := strings.Cut(filepath.Base(filepath.Dir(sbin)), "-")
	return numbers(text)
}

// numbers returns the numbers of a version, with 0, the oldest, for a part that is not a
// number.
func numbers(version string) (all []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		all = append(all, n)
	}
	return all
}

// missing returns the first required program that does not exist, or "".
func missing(sbin string) string {
	for _, name := range []string{"rabbitmq-server", "rabbitmqctl"} {
		if _, err := exec.LookPath(filepath.Join(sbin, name)); err != nil {
			return name
		}
	}
	return ""
}

// check returns an error if a server is too old, or of another release than its programs
// should be.
func (i installation) check(is string) error {
	if n := numbers(is); n[0] == i.release.major() && slices.Compare(n, []int{3, 10}) >= 0 {
		return nil
	}
	return fmt.Errorf("%s has the programs of RabbitMQ %s; set %s to the directory of those of %v", i.sbin, is, i.release.variable(), i.release)
}

// tempDir returns the directory for temporary files, which is visible to programs in a Debian
// too.
func (i installation) tempDir() string {
	if i.root == "" {
		return os.TempDir()
	}
	return filepath.Join(i.root, "tmp")
}

// inside returns the path of a file as the programs see it.
func (i installation) inside(path string) string {
	if i.root == "" {
		return path
	}
	return strings.TrimPrefix(path, filepath.Clean(i.root))
}

// program returns a command that gets none of the caller's variables for RabbitMQ and Erlang.
func (i installation) program(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RABBITMQ_") || strings.HasPrefix(v, "ERL_") || strings.HasPrefix(v, "NOTIFY_SOCKET=")
	})
	if i.root != "" {
		enter(cmd, i.root)
		cmd.Env = append(cmd.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=/tmp")
	}
	return cmd
}

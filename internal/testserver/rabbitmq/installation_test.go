//go:build darwin || linux

package rabbitmq

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install writes programs that do nothing.
func install(t *testing.T, dir string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFind_MissingPrograms(t *testing.T) {
	nowhere := t.TempDir()
	for _, c := range []struct {
		name            string
		release         Release
		variable, value string
		want            string
	}{
		{"of RabbitMQ 3", V3, "REPRISE_TEST_RABBITMQ_BIN", nowhere, "REPRISE_TEST_RABBITMQ_BIN is \"" + nowhere + "\", which has no rabbitmq-server"},
		{"of RabbitMQ 4", V4, "REPRISE_TEST_RABBITMQ4_BIN", nowhere, "REPRISE_TEST_RABBITMQ4_BIN is \"" + nowhere + "\", which has no rabbitmq-server"},
		{"at a relative path", V4, "REPRISE_TEST_RABBITMQ4_BIN", "sbin", "set it to an absolute path"},
		{"in Debian 13", V4, debianVariable, nowhere, "nor in " + nowhere + ": on Debian 12 run scripts/servers as root; elsewhere install it and set REPRISE_TEST_RABBITMQ4_BIN"},
		{"in Debian 13 at a relative path", V4, debianVariable, "debian13", "set it to an absolute path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, variable := range []string{V3.variable(), V4.variable(), debianVariable} {
				t.Setenv(variable, "")
			}
			t.Setenv(c.variable, c.value)
			if found, err := find(c.release); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("find = %v, %v; want %s", found, err, c.want)
			}
		})
	}
}

func TestFind_NewestPrograms(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const packages = "/usr/lib/rabbitmq/lib/rabbitmq_server-"
	for _, version := range []string{"3.9.13", "3.10.8", "4.0.5"} {
		install(t, root+packages+version+"/sbin", "rabbitmq-server", "rabbitmqctl")
	}
	install(t, root+packages+"3.12.1/sbin", "rabbitmqctl") // only the client
	for release, want := range map[Release]string{V3: packages + "3.10.8/sbin", V4: packages + "4.0.5/sbin"} {
		if got := newest(root, release); got != want {
			t.Errorf("newest of %v = %q, want %q", release, got, want)
		}
	}
	if got := newest(t.TempDir(), V3); got != "" {
		t.Errorf("newest = %q where there is none", got)
	}
}

func TestFind_VersionMustBeTheRelease(t *testing.T) {
	t.Parallel()
	for version, fits := range map[string]map[Release]bool{
		"3.9.13": {V3: false, V4: false},
		"3.10.8": {V3: true, V4: false},
		"3.13.0": {V3: true, V4: false},
		"4.0.5":  {V3: false, V4: true},
		"":       {V3: false, V4: false},
	} {
		for release, want := range fits {
			err := installation{release: release, sbin: "/somewhere"}.check(version)
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), release.variable()) {
				t.Errorf("version %q for %v: %v, want %v", version, release, err, want)
			}
		}
	}
}

func TestModulesBeside_FindsTheLibraries(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/lib/erlang/bin/epmd":             "/usr/lib/erlang/lib/*/ebin/*.beam",
		"/usr/lib/erlang/erts-13.1.5/bin/epmd": "/usr/lib/erlang/lib/*/ebin/*.beam",
	} {
		if got := modulesBeside(program); got != want {
			t.Errorf("the modules beside %s are %s, want %s", program, got, want)
		}
	}
}

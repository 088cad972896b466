//go:build darwin || linux

package rabbitmq

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// defaultPlugins are the applications that every server runs, besides their requirements.
var defaultPlugins = []string{"rabbit", "rabbitmq_management"}

var (
	pluginName = regexp.MustCompile(`^[a-z0-9_]+$`)
	needs      = regexp.MustCompile(`(?:included_)?applications\s*,\s*\[([^\]]*)\]`)
)

// enabledPlugins returns the content of the file of enabled plugins.
func enabledPlugins(wanted []string) (string, error) {
	for _, name := range wanted {
		if !pluginName.MatchString(name) {
			return "", fmt.Errorf("Config.Plugins has %q, which is no name of a plugin", name)
		}
	}
	all := append(slices.Clone(defaultPlugins[1:]), wanted...)
	return "[" + strings.Join(all, ",") + "].\n", nil
}

// linkPrograms makes a directory that looks like RabbitMQ's own, but has only the wanted
// plugins and their requirements. Erlang looks for each of a thousand modules in all plugins,
// and RabbitMQ reads them all: with half of the plugins it starts in two thirds of the time.
func (s *Server) linkPrograms(wanted []string) error {
	home := filepath.Dir(s.installed.sbin) // as the server sees it
	available, err := readPlugins(filepath.Join(s.installed.root, home, "plugins"))
	if err != nil {
		return err
	}
	entries, err := available.closure(append(slices.Clone(defaultPlugins), wanted...))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.files.path(linkedPlugins), 0o700); err != nil {
		return err
	}
	for _, name := range []string{"sbin", "escript"} {
		err = errors.Join(err, os.Symlink(filepath.Join(home, name), s.files.path(filepath.Join(linked, name))))
	}
	for _, name := range entries {
		err = errors.Join(err, os.Symlink(filepath.Join(home, "plugins", name), s.files.path(filepath.Join(linkedPlugins, name))))
	}
	return errors.Join(err, s.linkModules(home, entries))
}

// linkModules makes a directory with the modules of plugins and of Erlang, in which Erlang
// looks first: otherwise it asks the system for twenty thousand files that do not exist, which
// is up to a fifth of a start.
func (s *Server) linkModules(home string, entries []string) error {
	dir := s.files.path(linkedModules)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	patterns := []string{s.installed.erlang}
	for _, name := range entries {
		patterns = append(patterns, filepath.Join(home, "plugins", name, "ebin", "*.beam"))
	}
	var errs []error
	for _, pattern := range patterns {
		modules, err := filepath.Glob(s.installed.root + pattern)
		errs = append(errs, err)
		for _, module := range modules {
			errs = append(errs, os.Symlink(s.installed.inside(module), filepath.Join(dir, filepath.Base(module))))
		}
	}
	return errors.Join(errs...)
}

// application is part of RabbitMQ, or one of its plugins.
type application struct {
	entry string   // name in the directory of plugins, such as "rabbit-3.10.8"
	needs []string // other applications, some of which are Erlang's
}

// applications are the applications in a directory of plugins, by name.
type applications struct {
	known  map[string]application
	others []string // other entries, which may be anything
}

func readPlugins(dir string) (applications, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return applications{}, fmt.Errorf("the plugins of RabbitMQ, which are beside its directory sbin: %w", err)
	}
	all := applications{known: map[string]application{}}
	for _, entry := range entries {
		files, err := filepath.Glob(filepath.Join(dir, entry.Name(), "ebin", "*.app"))
		if err != nil {
			return applications{}, err
		}
		if len(files) != 1 {
			if entry.IsDir() || filepath.Ext(entry.Name()) == ".ez" {
				all.others = append(all.others, entry.Name())
			}
			continue
		}
		spec, err := os.ReadFile(files[0])
		if err != nil {
			return applications{}, err
		}
		name := strings.TrimSuffix(filepath.Base(files[0]), ".app")
		all.known[name] = application{entry: entry.Name(), needs: requirements(string(spec))}
	}
	return all, nil
}

// requirements returns the applications that an application's specification, an Erlang term,
// requires.
func requirements(spec string) (names []string) {
	for _, list := range needs.FindAllStringSubmatch(spec, -1) {
		for name := range strings.SplitSeq(list[1], ",") {
			if name = strings.Trim(name, "' \t\r\n"); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// closure returns the entries of applications and of all their requirements.
func (a applications) closure(wanted []string) ([]string, error) {
	for _, name := range wanted {
		if _, ok := a.known[name]; !ok && len(a.others) == 0 {
			return nil, fmt.Errorf("there is no plugin %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(a.known)), ", "))
		}
	}
	found := map[string]bool{}
	for todo := slices.Clone(wanted); len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		app, ok := a.known[name]
		if !ok || found[app.entry] {
			continue
		}
		found[app.entry] = true
		todo = append(todo, app.needs...)
	}
	return append(slices.Sorted(maps.Keys(found)), a.others...), nil
}

package main

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/reprise-go/reprise"

// An area is a part of the repository with its own rules: a directory at its top, "adapter" for everything below one
// directory of transport/, or "example" for an example that is a separate module.
type rules struct {
	imports []string // other areas that its packages may import
	tests   []string // areas that its tests may import in addition
	foreign bool     // whether it may import third-party modules
}

// areas has the rules of imports. Each adapter is a separate area: it never imports another adapter.
var areas = map[string]rules{
	"root":        {}, // documentation only
	"core":        {imports: []string{"internal"}, tests: []string{"transport", "transport/inmemory"}},
	"transport":   {imports: []string{"core", "internal"}, tests: []string{"transport/inmemory", "conformance"}},
	"conformance": {imports: []string{"core"}, tests: []string{"transport", "transport/inmemory", "internal"}},
	"internal":    {imports: []string{"core", "transport", "middleware"}},
	"adapter":     {imports: []string{"core", "transport"}, tests: []string{"conformance", "internal"}, foreign: true},
	"fake":        {imports: []string{"core", "transport", "transport/sqlserver"}, tests: []string{"internal", "transport/inmemory"}, foreign: true},
	"bridge":      {imports: []string{"core", "transport"}, tests: []string{"transport/inmemory", "inbox"}},
	"inbox":       {imports: []string{"core", "transport/inmemory"}},
	"store":       {imports: []string{"core", "inbox"}, tests: []string{"internal", "adapter", "transport/inmemory"}, foreign: true},
	"examples":    {imports: []string{"core", "transport", "transport/inmemory", "conformance"}},
	"example":     {imports: []string{"core", "transport", "adapter", "middleware", "otel", "bridge", "inbox", "store"}, tests: []string{"internal"}, foreign: true},
	"middleware":  {imports: []string{"core"}, tests: []string{"transport/inmemory"}, foreign: true},
	"otel":        {imports: []string{"internal", "core", "middleware"}, tests: []string{"transport/inmemory"}, foreign: true},
	"docs":        {imports: []string{"core", "transport", "transport/inmemory", "conformance", "inbox"}},
	"bench":       {imports: []string{"core", "transport", "adapter", "internal", "otel", "inbox", "store"}, foreign: true},
	"suites":      {imports: []string{"core", "transport", "adapter", "internal"}, foreign: true},
	"soak":        {imports: []string{"core", "transport", "adapter", "internal"}, foreign: true},
	"cmd":         {imports: []string{"core", "transport", "adapter", "internal"}, foreign: true},
}

// inRoot lists the adapters that belong to the root module and share its rule: the standard library only.
var inRoot = []string{"transport/inmemory"}

// modules lists the examples that are separate modules, because they need an adapter or middleware.
var modules = []string{"examples/bridge", "examples/foreign", "examples/observability", "examples/outbox", "examples/resilience"}

// stores lists the stores of the inbox that are separate modules, because they need a client of a database.
var stores = []string{"inbox/postgres"}

// suites lists the modules that run test suites of other projects over the transports.
var suites = []string{"internal/foreignsuites"}

// fakes lists the packages within adapters for the tests of handlers, which run on the in-memory transport.
var fakes = []string{"transport/sqlserver/sqlservertest"}

// testModule is the directory of the tests of a module, or of a test server, that need more than it requires. They are a
// separate module, so that users do not get these requirements. They may import the same packages as the tests beside
// them, and modules of others, and nothing imports them.
const testModule = "/internal/test"

// tested returns the package to whose test module a package belongs, or false.
func tested(pkg string) (string, bool) {
	subject, _, ok := strings.Cut(pkg+"/", testModule+"/")
	return subject, ok
}

// hasUsers reports whether programs of others import packages of a module.
func hasUsers(path string) bool {
	_, isTestModule := tested(path)
	return !isTestModule && slices.Contains([]string{"adapter", "store", "middleware", "otel"}, kind(area(path)))
}

// unimported returns the required modules of which no package is imported.
func unimported(requires, imports []string) (unused []string) {
	used := map[string]bool{}
	for _, path := range imports {
		longest := ""
		for _, r := range requires {
			if within(path, r) && len(r) > len(longest) {
				longest = r
			}
		}
		used[longest] = true
	}
	for _, r := range requires {
		if !used[r] {
			unused = append(unused, r)
		}
	}
	return unused
}

// testServers lists the test servers within adapters: only tests import them, so they and the packages below them may
// import the same packages as tests.
var testServers = []string{"transport/sqlserver/internal/testdatabase"}

func isTestServer(pkg string) bool {
	return slices.ContainsFunc(testServers, func(server string) bool { return within(pkg, module+"/"+server) })
}

// optional maps a client that not all users of an adapter need to the package of the adapter that imports it. The
// adapter's other packages import neither, so that only a program that imports that package depends on the client.
var optional = map[string]string{"github.com/microsoft/go-mssqldb": "transport/sqlserver/microsoft"}

// reservedFor returns the package of an adapter for which an import is reserved, because with it all users of the adapter
// would depend on an optional client, or "".
func reservedFor(pkg, path string) string {
	for client, reserved := range optional {
		reserved = module + "/" + reserved
		adapter := reserved[:strings.LastIndex(reserved, "/")]
		if within(pkg, adapter) && pkg != reserved && (within(path, client) || path == reserved) {
			return reserved
		}
	}
	return ""
}

// within reports whether path is that of a package or of a package below it.
func within(path, parent string) bool { return strings.HasPrefix(path+"/", parent+"/") }

// violations returns the forbidden imports of a package, or those of its tests.
func violations(pkg string, imports []string, test bool) (wrong []string) {
	subject, isTestModule := tested(pkg)
	if !isTestModule {
		subject = pkg
	}
	from := area(subject)
	r, ok := areas[kind(from)]
	if !ok && test {
		return nil // reported for the package itself
	}
	if !ok {
		return []string{fmt.Sprintf("%s: no rule lists the packages that it may import: give it a rule in tools/cmd/imports", pkg)}
	}
	allowed := r.imports
	if test || isTestModule || isTestServer(pkg) {
		allowed = append(slices.Clone(allowed), r.tests...)
	}
	importer := pkg
	if test {
		importer = "the tests of " + pkg
	}
	for _, path := range imports {
		if reserved := reservedFor(pkg, path); reserved != "" && !test {
			wrong = append(wrong, fmt.Sprintf("%s may not import %s: programs that need it import %s, and the others do not depend on it", importer, path, reserved))
			continue
		}
		to := area(path)
		other, ofTests := tested(path)
		switch {
		case ofTests && !(isTestModule && other == subject):
			wrong = append(wrong, fmt.Sprintf("%s may not import %s: it is a module of tests", importer, path))
		case to == from, standard(path):
		case to == "":
			if !r.foreign && !isTestModule || slices.Contains(inRoot, from) {
				wrong = append(wrong, fmt.Sprintf("%s may not import %s: only the standard library and ourselves", importer, path))
			}
		case slices.Contains(allowed, to), slices.Contains(allowed, kind(to)):
		default:
			wrong = append(wrong, fmt.Sprintf("%s may not import %s: only %s", importer, path, strings.Join(allowed, ", ")))
		}
	}
	return wrong
}

// area returns the area of one of our packages, an adapter and an example that is a module with its directory; "" if
// the package is not ours.
func area(path string) string {
	path, ours := strings.CutPrefix(path+"/", module+"/")
	if !ours {
		return ""
	}
	if slices.Contains(fakes, strings.TrimSuffix(path, "/")) {
		return "fake"
	}
	parts := strings.Split(path, "/")
	if len(parts) == 1 {
		return "root"
	}
	directory := parts[0] + "/" + parts[1]
	if parts[0] == "transport" && parts[1] != "" || slices.Contains(modules, directory) || slices.Contains(stores, directory) || slices.Contains(suites, directory) {
		return directory
	}
	return parts[0]
}

// kind returns the key of an area's rules.
func kind(area string) string {
	switch {
	case strings.HasPrefix(area, "transport/"):
		return "adapter"
	case slices.Contains(modules, area):
		return "example"
	case slices.Contains(stores, area):
		return "store"
	case slices.Contains(suites, area):
		return "suites"
	default:
		return area
	}
}

// standard reports whether path is in the standard library: its first element is not a domain.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

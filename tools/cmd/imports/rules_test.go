package main

import (
	"slices"
	"testing"
)

func TestViolations(t *testing.T) {
	tests := map[string]struct {
		pkg, imports string
		test         bool
		allowed      bool
	}{
		"the standard library":                          {"core", "net/http", false, true},
		"a module of others in core":                    {"core", "example.com/log", false, false},
		"a module of others in core's tests":            {"core", "example.com/log", true, false},
		"core from within":                              {"core/coretest", module + "/core", false, true},
		"internal in core":                              {"core", module + "/internal/lru", false, true},
		"transport in core":                             {"core", module + "/transport", false, false},
		"the in-memory transport in core":               {"core", module + "/transport/inmemory", false, false},
		"the in-memory transport in core's tests":       {"core", module + "/transport/inmemory", true, true},
		"a broker's adapter in core's tests":            {"core", module + "/transport/rabbitmq", true, false},
		"core in transport":                             {"transport", module + "/core", false, true},
		"an adapter in transport":                       {"transport", module + "/transport/inmemory", false, false},
		"core in conformance":                           {"conformance", module + "/core", false, true},
		"transport in conformance":                      {"conformance", module + "/transport", false, false},
		"an adapter in conformance":                     {"conformance", module + "/transport/inmemory", false, false},
		"the in-memory transport in conformance' tests": {"conformance", module + "/transport/inmemory", true, true},
		"core in an adapter":                            {"transport/rabbitmq", module + "/core", false, true},
		"an adapter from within":                        {"transport/rabbitmq", module + "/transport/rabbitmq/internal/x", false, true},
		"a client in an adapter":                        {"transport/rabbitmq", "example.com/amqp", false, true},
		"a client in the in-memory transport":           {"transport/inmemory", "example.com/amqp", false, false},
		"another adapter in an adapter":                 {"transport/rabbitmq", module + "/transport/sqs", false, false},
		"another adapter in an adapter's tests":         {"transport/rabbitmq", module + "/transport/inmemory", true, false},
		"conformance in an adapter":                     {"transport/rabbitmq", module + "/conformance", false, false},
		"conformance in an adapter's tests":             {"transport/rabbitmq", module + "/conformance", true, true},
		"internal in an adapter":                        {"transport/rabbitmq", module + "/internal/lru", false, false},
		"internal in an adapter's tests":                {"transport/rabbitmq", module + "/internal/testserver", true, true},
		"internal in an adapter's test server":          {"transport/sqlserver/internal/testdatabase", module + "/internal/testserver", false, true},
		"internal below an adapter's test server":       {"transport/sqlserver/internal/testdatabase/x", module + "/internal/testserver", false, true},
		"internal beside an adapter's test server":      {"transport/sqlserver/internal/testdatabases", module + "/internal/testserver", false, false},
		"another adapter in an adapter's test server":   {"transport/sqlserver/internal/testdatabase", module + "/transport/sqs", false, false},
		"core in middleware":                            {"middleware/resilience", module + "/core", false, true},
		"a library in middleware":                       {"middleware/resilience", "example.com/policies", false, true},
		"an adapter in middleware":                      {"middleware/resilience", module + "/transport/rabbitmq", false, false},
		"the in-memory transport in middleware":         {"middleware/resilience", module + "/transport/inmemory", false, false},
		"the in-memory transport in middleware's tests": {"middleware/resilience", module + "/transport/inmemory", true, true},
		"the in-memory transport in a fake's tests":     {"transport/sqlserver/sqlservertest", module + "/transport/inmemory", true, true},
		"the in-memory transport in a fake":             {"transport/sqlserver/sqlservertest", module + "/transport/inmemory", false, false},
		"its adapter in a fake":                         {"transport/sqlserver/sqlservertest", module + "/transport/sqlserver", false, true},
		"an optional client in its adapter":             {"transport/sqlserver", "github.com/microsoft/go-mssqldb/msdsn", false, false},
		"an optional client in its package":             {"transport/sqlserver/microsoft", "github.com/microsoft/go-mssqldb", false, true},
		"an optional client below its adapter":          {"transport/sqlserver/internal/x", "github.com/microsoft/go-mssqldb", false, false},
		"an optional client in its adapter's fake":      {"transport/sqlserver/sqlservertest", "github.com/microsoft/go-mssqldb", false, false},
		"an optional client in its adapter's tests":     {"transport/sqlserver", "github.com/microsoft/go-mssqldb", true, true},
		"a client beside an optional one":               {"transport/sqlserver", "github.com/microsoft/go-mssqldb2", false, true},
		"an optional client's package in its adapter":   {"transport/sqlserver", module + "/transport/sqlserver/microsoft", false, false},
		"an optional client's package in tests":         {"transport/sqlserver", module + "/transport/sqlserver/microsoft", true, true},
		"an optional client's package in an example":    {"examples/outbox", module + "/transport/sqlserver/microsoft", false, true},
		"core in the bridge":                            {"bridge", module + "/core", false, true},
		"the toolkit in the bridge":                     {"bridge", module + "/transport", false, true},
		"an adapter in the bridge":                      {"bridge", module + "/transport/rabbitmq", true, false},
		"the inbox in the bridge's tests":               {"bridge", module + "/inbox", true, true},
		"the bridge in an example module":               {"examples/bridge", module + "/bridge", false, true},
		"core in the inbox":                             {"inbox", module + "/core", false, true},
		"a library in the inbox":                        {"inbox", "example.com/sql", false, false},
		"the in-memory transport in the inbox's kit":    {"inbox/inboxtest", module + "/transport/inmemory", false, true},
		"an adapter in the inbox":                       {"inbox", module + "/transport/rabbitmq", true, false},
		"a store in the inbox":                          {"inbox", module + "/inbox/postgres", true, false},
		"the inbox in a store":                          {"inbox/postgres", module + "/inbox", false, true},
		"the inbox's kit in a store's tests":            {"inbox/postgres", module + "/inbox/inboxtest", true, true},
		"a client in a store":                           {"inbox/postgres", "example.com/pgx", false, true},
		"an adapter in a store":                         {"inbox/postgres", module + "/transport/rabbitmq", false, false},
		"an adapter in a store's tests":                 {"inbox/postgres", module + "/transport/rabbitmq", true, true},
		"a test server in a store's tests":              {"inbox/postgres", module + "/internal/testserver", true, true},
		"an adapter in bench":                           {"bench", module + "/transport/rabbitmq", false, true},
		"a peer in bench":                               {"bench", "example.com/peer", false, true},
		"an adapter in soak":                            {"soak", module + "/transport/rabbitmq", false, true},
		"a test server in soak":                         {"soak", module + "/internal/testserver", false, true},
		"a broker's adapter in examples":                {"examples/quickstart", module + "/transport/rabbitmq", false, false},
		"a broker's adapter in an example module":       {"examples/outbox", module + "/transport/rabbitmq", false, true},
		"core in otel":                                  {"otel", module + "/core", false, true},
		"a fallback in otel":                            {"otel", module + "/middleware/fallback", false, true},
		"the API in otel":                               {"otel", "example.com/telemetry", false, true},
		"an adapter in otel's tests":                    {"otel", module + "/transport/rabbitmq", true, false},
		"the in-memory transport in otel's tests":       {"otel", module + "/transport/inmemory", true, true},
		"otel in core":                                  {"core", module + "/otel", true, false},
		"otel in an example module":                     {"examples/observability", module + "/otel", false, true},
		"otel in the benchmarks":                        {"bench", module + "/otel", false, true},
		"middleware in an example module":               {"examples/resilience", module + "/middleware/resilience", false, true},
		"middleware in other examples":                  {"examples/quickstart", module + "/middleware/resilience", false, false},
		"a client in an example module":                 {"examples/outbox", "example.com/amqp", false, true},
		"a client in other examples":                    {"examples/quickstart", "example.com/amqp", false, false},
		"internal in an example module":                 {"examples/outbox", module + "/internal/lru", false, false},
		"internal in an example module's tests":         {"examples/outbox", module + "/internal/testserver", true, true},
		"an example module in other examples":           {"examples/quickstart", module + "/examples/outbox", false, false},
		"an SDK in the tests of a test server":          {"internal/testserver/sqs/internal/test", "example.com/sdk", true, true},
		"a test server in its tests with an SDK":        {"internal/testserver/asb/internal/test/x", module + "/internal/testserver/asb/sbserver", true, true},
		"an adapter in a test server's tests":           {"internal/testserver/sqs/internal/test", module + "/transport/rabbitmq", true, false},
		"tests with an SDK in internal":                 {"internal/lru", module + "/internal/testserver/sqs/internal/test", false, false},
		"tests with an SDK in other tests":              {"internal/testserver/asb/internal/test", module + "/internal/testserver/sqs/internal/test", true, false},
		"tests with an SDK in themselves":               {"internal/testserver/sqs/internal/test/x", module + "/internal/testserver/sqs/internal/test", true, true},
		"a directory with a similar name":               {"internal/lru/internal/tests", "example.com/sdk", true, false},
		"an SDK in a test server":                       {"internal/testserver/sqs", "example.com/sdk", false, false},
		"an adapter in internal":                        {"internal/lru", module + "/transport/rabbitmq", false, false},
		"a directory without rules":                     {"elsewhere", "fmt", false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wrong := violations(module+"/"+tt.pkg, []string{tt.imports}, tt.test)
			if tt.allowed != (len(wrong) == 0) {
				t.Errorf("allowed = %t, violations: %q", tt.allowed, wrong)
			}
		})
	}
}

func TestUnimported(t *testing.T) {
	requires := []string{"example.com/client", "example.com/client/tests", "example.com/clients", "example.com/sdk"}
	imports := []string{"fmt", "example.com/client/sub", "example.com/sdk"}
	if got, want := unimported(requires, imports), []string{"example.com/client/tests", "example.com/clients"}; !slices.Equal(got, want) {
		t.Errorf("unimported modules are %q, want %q", got, want)
	}
}

func TestHasUsers(t *testing.T) {
	for path, want := range map[string]bool{
		"otel": true, "otel/internal/test": false, "transport/sqs/s3bodies": true, "transport/sqs": true, "inbox/postgres": true,
		"middleware/resilience": true, "bench": false, "examples/outbox": false, "internal/testserver/sqs/internal/test": false,
	} {
		if got := hasUsers(module + "/" + path); got != want {
			t.Errorf("%s has users: %t", path, got)
		}
	}
}

// The package at the root is documentation, and imports nothing of ours.
func TestViolations_Root(t *testing.T) {
	if wrong := violations(module, []string{"fmt"}, false); len(wrong) > 0 {
		t.Errorf("the standard library is refused: %q", wrong)
	}
	if wrong := violations(module, []string{module + "/core"}, false); len(wrong) != 1 {
		t.Errorf("core at the root is %q, want one violation", wrong)
	}
}

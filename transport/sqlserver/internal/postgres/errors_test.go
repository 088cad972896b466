package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

func TestClassify_UsesTheStateAndTheMoment(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code, severity  string
		want, connected dialect.Fault // while connecting, and later
	}{
		"missing table":           {"42P01", "ERROR", dialect.FaultNoTable, dialect.FaultNoTable},
		"missing schema":          {"3F000", "ERROR", dialect.FaultNoTable, dialect.FaultNoTable},
		"standby":                 {"25006", "ERROR", dialect.FaultReadOnly, dialect.FaultReadOnly},
		"missing right":           {"42501", "ERROR", dialect.FaultRefused, dialect.FaultRefused},
		"missing database":        {"3D000", "FATAL", dialect.FaultRefused, dialect.FaultRefused},
		"wrong password":          {"28P01", "FATAL", dialect.FaultRefused, dialect.FaultRefused},
		"unknown option":          {"42704", "FATAL", dialect.FaultRefused, dialect.FaultOutage},
		"statement timeout":       {"57014", "ERROR", dialect.FaultBusy, dialect.FaultBusy},
		"deadlock":                {"40P01", "ERROR", dialect.FaultBusy, dialect.FaultBusy},
		"lock timeout":            {"55P03", "ERROR", dialect.FaultBusy, dialect.FaultBusy},
		"serialization":           {"40001", "ERROR", dialect.FaultConflict, dialect.FaultConflict},
		"idle transaction":        {"25P03", "FATAL", dialect.FaultOutage, dialect.FaultOutage},
		"shutdown":                {"57P01", "FATAL", dialect.FaultUnreached, dialect.FaultOutage},
		"too many connections":    {"53300", "FATAL", dialect.FaultUnreached, dialect.FaultBusy},
		"full disk":               {"53100", "ERROR", dialect.FaultUnreached, dialect.FaultBusy},
		"input/output error":      {"58030", "ERROR", dialect.FaultBusy, dialect.FaultBusy},
		"fatal system error":      {"58000", "PANIC", dialect.FaultUnreached, dialect.FaultOutage},
		"duplicate":               {"23505", "ERROR", dialect.FaultRow, dialect.FaultRow},
		"unknown state":           {"", "ERROR", dialect.FaultStatement, dialect.FaultStatement},
		"fatal and unknown state": {"XX000", "FATAL", dialect.FaultUnreached, dialect.FaultOutage},
	} {
		err := fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: test.code, Severity: test.severity})
		if got := (postgres.Dialect{}).Classify(&sqlexec.UnreachedError{Err: err}); got != test.want {
			t.Errorf("%s while connecting: %d, want %d", name, got, test.want)
		}
		if got := (postgres.Dialect{}).Classify(err); got != test.connected {
			t.Errorf("%s in a session: %d, want %d", name, got, test.connected)
		}
	}
}

// TestClassify_SaysWhoseFaultAClassIs has the classes of PostgreSQL's Appendix A. Those of errors while
// connecting are about the connection, if they are not about an option.
func TestClassify_SaysWhoseFaultAClassIs(t *testing.T) {
	t.Parallel()
	for fault, classes := range map[dialect.Fault]map[string]string{
		dialect.FaultRow: {
			"09": "triggered action exception", "21": "cardinality violation", "22": "data exception", "23": "integrity constraint violation",
			"27": "triggered data change violation", "2F": "SQL routine exception", "38": "external routine exception", "39": "external routine invocation exception",
			"44": "WITH CHECK OPTION violation", "P0": "PL/pgSQL error",
		},
		dialect.FaultStatement: {
			"03": "SQL statement not yet complete", "0A": "feature not supported", "0B": "invalid transaction initiation", "0F": "locator exception", "0L": "invalid grantor",
			"0P": "invalid role specification", "0Z": "diagnostics exception", "20": "case not found", "24": "invalid cursor state", "25": "invalid transaction state",
			"26": "invalid SQL statement name", "2B": "dependent privilege descriptors still exist", "2D": "invalid transaction termination", "34": "invalid cursor name",
			"3B": "savepoint exception", "42": "syntax error or access rule violation", "54": "program limit exceeded", "72": "snapshot failure", "F0": "configuration file error",
			"HV": "foreign data wrapper error", "XX": "internal error",
		},
		dialect.FaultRefused: {"28": "invalid authorization"},
		dialect.FaultOutage:  {"08": "connection exception", "57": "operator intervention"},
		dialect.FaultBusy:    {"40": "transaction rollback", "53": "insufficient resources", "55": "object not in prerequisite state", "58": "system error"},
	} {
		for class, name := range classes {
			for _, code := range []string{class + "000", class + "999"} {
				if got := (postgres.Dialect{}).Classify(&pgconn.PgError{Code: code, Severity: "ERROR"}); got != fault {
					t.Errorf("%s (%s): %d, want %d", code, name, got, fault)
				}
			}
			if got := (postgres.Dialect{}).Classify(&pgconn.PgError{Code: class + "999", Severity: "FATAL"}); got == dialect.FaultRow || got == dialect.FaultStatement {
				t.Errorf("%s (%s) that ends the session: %d", class, name, got)
			}
		}
	}
	for class, want := range map[string]dialect.Fault{"22": dialect.FaultRefused, "42": dialect.FaultRefused, "23": dialect.FaultRow} {
		if got := (postgres.Dialect{}).Classify(&sqlexec.UnreachedError{Err: &pgconn.PgError{Code: class + "999", Severity: "ERROR"}}); got != want {
			t.Errorf("%s while connecting: %d, want %d", class, got, want)
		}
	}
}

func TestClassify_ErrorOfTheConnection(t *testing.T) {
	t.Parallel()
	broken := errors.New("the network")
	if got := (postgres.Dialect{}).Classify(broken); got != dialect.FaultOutage {
		t.Errorf("a broken connection: %d, want %d", got, dialect.FaultOutage)
	}
	if got := (postgres.Dialect{}).Classify(&sqlexec.UnreachedError{Err: broken}); got != dialect.FaultUnreached {
		t.Errorf("no connection: %d, want %d", got, dialect.FaultUnreached)
	}
}

func TestIsFence_OnlyDivisionByZero(t *testing.T) {
	t.Parallel()
	if !postgres.IsFence(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: "22012"})) {
		t.Error("a division by zero is not recognized")
	}
	if postgres.IsFence(&pgconn.PgError{Code: "22003"}) || postgres.IsFence(errors.New("the network")) {
		t.Error("another error is taken for a lost lease")
	}
}

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
		"duplicate":               {"23505", "ERROR", dialect.FaultStatement, dialect.FaultStatement},
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

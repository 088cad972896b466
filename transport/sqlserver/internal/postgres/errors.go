package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Classify uses the SQLSTATE (PostgreSQL's Appendix A). Without one, the connection
// failed.
func (Dialect) Classify(err error) dialect.Fault {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return dialect.ConnectionFault(err, pgconn.SafeToRetry(err))
	}
	connecting := sqlexec.IsConnecting(err)
	switch code := server.Code; code {
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		return dialect.FaultNoTable
	case "25006": // read_only_sql_transaction
		return dialect.FaultReadOnly
	case "42501", "3D000": // insufficient_privilege, invalid_catalog_name
		return dialect.FaultRefused
	case "57014": // query_cancelled: statement_timeout, or an operator
		return dialect.FaultBusy
	case "40001": // serialization_failure, if that isolation level is the default of the database
		return dialect.FaultConflict
	case "25P03", "25P04": // idle_in_transaction_session_timeout, transaction_timeout
		return dialect.FaultOutage
	default:
		switch class := code[:min(2, len(code))]; {
		case class == "28", // invalid authorization
			connecting && (class == "22" || class == "42"): // an option of the URL, or its value, that the server does not know
			return dialect.FaultRefused
		case class == "08", class == "57", class == "58" && server.Severity != "ERROR": // connection, operator intervention, system error
			return dialect.Outage(connecting)
		case class == "53" && connecting: // insufficient resources: too_many_connections
			return dialect.FaultUnreached
		case class == "53", class == "40", class == "55", class == "58": // and transaction rollback, not in prerequisite state
			return dialect.FaultBusy
		case server.Severity == "FATAL", server.Severity == "PANIC":
			return dialect.Outage(connecting)
		case isAboutRow(class):
			return dialect.FaultRow
		}
		return dialect.FaultStatement
	}
}

// isAboutRow reports whether errors of a class are about the values of a row, or are those of code
// that runs for it: a trigger, a policy, the expression of an index.
func isAboutRow(class string) bool {
	switch class {
	case "22", "23", "44", // data exception, integrity constraint violation, WITH CHECK OPTION violation
		"09", "21", "27", "2F", "38", "39", "P0": // triggered action, cardinality, triggered change, routines, PL/pgSQL
		return true
	}
	return false
}

// IsOutdatedPlan reports whether a prepared statement has failed because the types of its columns
// have changed. pgx prepares it again for the next call.
func IsOutdatedPlan(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "0A000" && server.Routine == "RevalidateCachedQuery" // the message may be translated
}

// IsFence reports whether an error is that of the statement dialect.QueueTexts.fence for a lease
// that is not valid: a division by zero.
func IsFence(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "22012"
}

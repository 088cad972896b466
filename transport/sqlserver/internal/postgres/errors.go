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
		}
		return dialect.FaultStatement
	}
}

// IsFence reports whether an error is that of the statement dialect.QueueTexts.fence for a lease
// that is not valid: a division by zero.
func IsFence(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "22012"
}

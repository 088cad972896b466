package sqlserver

import (
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// classify uses the SQLSTATE (PostgreSQL's Appendix A). Without one, the connection
// failed.
func (postgres) classify(err error) fault {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return connectionFault(err, pgconn.SafeToRetry(err))
	}
	var unreached *sqlexec.UnreachedError
	connecting := errors.As(err, &unreached) || errors.As(err, new(*pgconn.ConnectError))
	switch code := server.Code; code {
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		return faultNoTable
	case "25006": // read_only_sql_transaction
		return faultReadOnly
	case "42501", "3D000": // insufficient_privilege, invalid_catalog_name
		return faultRefused
	case "57014": // query_cancelled: statement_timeout, or an operator
		return faultBusy
	case "40001": // serialization_failure, if that isolation level is the default of the database
		return faultConflict
	case "25P03", "25P04": // idle_in_transaction_session_timeout, transaction_timeout
		return faultOutage
	default:
		switch class := code[:min(2, len(code))]; {
		case class == "28", // invalid authorization
			connecting && (class == "22" || class == "42"): // an option of the URL, or its value, that the server does not know
			return faultRefused
		case class == "08", class == "57", class == "58" && server.Severity != "ERROR": // connection, operator intervention, system error
			return outage(connecting)
		case class == "53" && connecting: // insufficient resources: too_many_connections
			return faultUnreached
		case class == "53", class == "40", class == "55", class == "58": // and transaction rollback, not in prerequisite state
			return faultBusy
		case server.Severity == "FATAL", server.Severity == "PANIC":
			return outage(connecting)
		}
		return faultStatement
	}
}

func outage(connecting bool) fault {
	if connecting {
		return faultUnreached
	}
	return faultOutage
}

// connectionFault is the fault of an error that is not the server's.
func connectionFault(err error, unsent bool) fault {
	var unreached *sqlexec.UnreachedError
	// Drivers return ErrBadConn before they send anything.
	return outage(unsent || errors.As(err, &unreached) || errors.Is(err, driver.ErrBadConn))
}

// isFence reports whether an error is that of the statement queueTexts.fence for a lease
// that is not valid: a division by zero.
func isFence(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "22012"
}

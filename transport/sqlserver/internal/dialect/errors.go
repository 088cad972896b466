package dialect

import (
	"database/sql/driver"
	"errors"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Outage is the fault of a lost connection. connecting says that it was not established,
// so that no statement was executed.
func Outage(connecting bool) Fault {
	if connecting {
		return FaultUnreached
	}
	return FaultOutage
}

// ConnectionFault is the fault of an error that is not the server's.
func ConnectionFault(err error, unsent bool) Fault {
	var unreached *sqlexec.UnreachedError
	// Drivers return ErrBadConn before they send anything.
	return Outage(unsent || errors.As(err, &unreached) || errors.Is(err, driver.ErrBadConn))
}

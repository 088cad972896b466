package microsoft

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// These are error numbers (sys.messages) that say more than their severity.
var (
	noTable = []int32{
		208, // invalid object name
	}
	refused = []int32{
		229, 230, 262, // a permission is denied
		911, 916, // the database does not exist, or is not for this login
		2760,                // the schema does not exist, or is not for this user
		18450, 18451, 18452, // the login is not accepted
		18456,                      // login failed
		18470, 18486, 18487, 18488, // the account is disabled, locked, or its password is old
		40532, 40615, 40914, // Azure: the server is not for this login or network
	}
	busy = []int32{
		1205, 1222, // victim of a deadlock; lock request timed out
		3960, 3966, // another transaction was first; the versions of rows are gone
		921, 922, 924, 926, 927, 942, 945, 952, // the database cannot be opened at the moment
		955, 956, 983, 988, // the same in a mirror or an availability group
		701, 802, 1101, 1105, 1204, 8628, 8645, 8651, 9002, // out of memory, disk, log, locks
		10928, 10929, 10936, // Azure: a limit of the database
		40501, 40544, 40613, // Azure: busy; the database is full, or not available
		49918, 49919, 49920, // Azure: too many operations
		NumberLock,
	}
	readOnly = []int32{
		3906,               // the database is read-only
		954, 976, 978, 979, // it is a mirror or a secondary replica
		982, 4221, // and there is no readable one
	}
	// The login failed for a temporary reason. A client also gets 4060 and 4064 while the
	// database of its login is being recovered after a restart; a database that does not
	// exist looks the same.
	unreached = []int32{
		4060, 4064,
		17142, 17187, 17188, 17189, 17197, 17809, // the server is paused, starts, ends, or has too many connections
		18401, 18461, // it is upgrading itself, or for one administrator only
	}
	// The server has ended the session while it executed a statement.
	severed = []int32{
		40197,                             // Azure: moved elsewhere
		40549, 40550, 40551, 40552, 40553, // Azure: the transaction was too long or too large
	}
	// The transaction has ended, and its work is undone.
	transactionEnding = []int32{
		628, 3902, 3903, 3998, // no transaction to save, to commit or to roll back; it had to be rolled back
		6401, // another transaction, without the savepoint
		NumberEnded,
	}
)

// Classify uses the number and the severity of the server's errors. Without any such
// error the connection failed.
func (Dialect) Classify(err error) dialect.Fault {
	var unsent *sqlexec.UnreachedError
	connecting := errors.As(err, &unsent)
	if microsoftdriver.Severed(err) { // the server ended the connection
		return dialect.Outage(connecting)
	}
	reported := microsoftdriver.Errors(err)
	if len(reported) == 0 {
		var dialing *net.OpError
		return dialect.ConnectionFault(err, errors.As(err, &dialing) && dialing.Op == "dial")
	}
	// The first error has the cause: "login failed" is only a consequence of it.
	for _, one := range reported {
		if f := faultOf(one, connecting); f != dialect.FaultStatement {
			return f
		}
	}
	return dialect.FaultStatement
}

func faultOf(err microsoftdriver.Error, connecting bool) dialect.Fault {
	has := func(numbers []int32) bool { return slices.Contains(numbers, err.Number) }
	switch {
	case has(noTable):
		return dialect.FaultNoTable
	case has(refused):
		return dialect.FaultRefused
	case has(unreached):
		return dialect.FaultUnreached
	case has(busy):
		return dialect.FaultBusy
	case has(readOnly):
		return dialect.FaultReadOnly
	case has(severed), err.Class >= 20: // it ends the connection
		return dialect.Outage(connecting)
	case err.Class >= 17: // the server lacks a resource
		return dialect.FaultBusy
	default:
		return dialect.FaultStatement
	}
}

// TransactionEnded reports whether an error means that the server's transaction is gone,
// though the connection is not. go-mssqldb notices that the server, or a statement of the
// handler, has ended the transaction, and sends nothing more, because the server would
// execute it outside of any transaction.
func TransactionEnded(err error) bool {
	return slices.ContainsFunc(microsoftdriver.Errors(err), func(one microsoftdriver.Error) bool {
		return slices.Contains(transactionEnding, one.Number) ||
			one.Number == 0 && strings.HasPrefix(one.Message, "server does not have an active transaction")
	})
}

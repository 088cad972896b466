package microsoft

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

func TestClassifyErrors(t *testing.T) {
	t.Parallel()
	number := func(n int32, class uint8) error { return mssql.Error{Number: n, Class: class} }
	several := func(numbers ...int32) error {
		var all []mssql.Error
		for _, n := range numbers {
			all = append(all, mssql.Error{Number: n, Class: 14})
		}
		err := all[len(all)-1]
		err.All = all
		return err
	}
	for name, c := range map[string]struct {
		err  error
		want dialect.Fault
	}{
		"syntax":                                 {number(102, 15), dialect.FaultStatement},
		"duplicate key":                          {number(2627, 14), dialect.FaultStatement},
		"duplicate key in an index":              {number(2601, 14), dialect.FaultStatement},
		"a trigger on the table":                 {number(334, 16), dialect.FaultStatement},
		"what a user raises":                     {number(50000, 16), dialect.FaultStatement},
		"no such table":                          {number(208, 16), dialect.FaultNoTable},
		"no such table, wrapped":                 {fmt.Errorf("sqlserver: %w", number(208, 16)), dialect.FaultNoTable},
		"deadlock":                               {number(1205, 13), dialect.FaultBusy},
		"lock time-out":                          {number(1222, 16), dialect.FaultBusy},
		"file group full":                        {number(1105, 17), dialect.FaultBusy},
		"log full":                               {number(9002, 17), dialect.FaultBusy},
		"any other lack":                         {number(17_000, 17), dialect.FaultBusy},
		"Azure: busy":                            {number(40501, 20), dialect.FaultBusy},
		"Azure: full":                            {number(40544, 20), dialect.FaultBusy},
		"Azure: not available":                   {number(40613, 17), dialect.FaultBusy},
		"being recovered":                        {number(922, 14), dialect.FaultBusy},
		"read-only":                              {number(3906, 16), dialect.FaultReadOnly},
		"secondary replica":                      {number(978, 14), dialect.FaultReadOnly},
		"permission":                             {number(229, 14), dialect.FaultRefused},
		"database not for this login":            {number(916, 14), dialect.FaultRefused},
		"login failed":                           {number(18456, 14), dialect.FaultRefused},
		"login failed because of its database":   {several(4060, 18456), dialect.FaultUnreached},
		"table exists, so no constraint is made": {several(2714, 1750), dialect.FaultStatement},
		"shutting down":                          {number(17188, 16), dialect.FaultUnreached},
		"killed":                                 {number(596, 21), dialect.FaultOutage},
		"killed while connecting":                {&sqlexec.UnreachedError{Err: number(596, 21)}, dialect.FaultUnreached},
		"Azure: moved":                           {number(40197, 16), dialect.FaultOutage},
		"severed":                                {mssql.ServerError{}, dialect.FaultOutage},
		"nothing listens":                        {fmt.Errorf("open: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), dialect.FaultUnreached},
		"reset":                                  {&net.OpError{Op: "Read", Err: io.EOF}, dialect.FaultOutage},
		"stream cut":                             {mssql.StreamError{InnerError: io.ErrUnexpectedEOF}, dialect.FaultOutage},
		"never sent":                             {driver.ErrBadConn, dialect.FaultUnreached},
		"never sent, says go-mssqldb":            {mssql.RetryableError{}, dialect.FaultUnreached},
		"cut off":                                {context.DeadlineExceeded, dialect.FaultOutage},
		"no connection in time":                  {&sqlexec.UnreachedError{Err: context.DeadlineExceeded}, dialect.FaultUnreached},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Dialect{}).Classify(c.err); got != c.want {
				t.Errorf("%v is fault %d, want %d", c.err, got, c.want)
			}
		})
	}
}

func TestTransactionEndedByAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing to commit":          {mssql.Error{Number: 3902}, true},
		"no savepoint":               {mssql.Error{Number: 6401}, true},
		"nor any to set again":       {mssql.Error{Number: 628, All: []mssql.Error{{Number: 3903}, {Number: 628}}}, true},
		"another transaction":        {mssql.Error{Number: NumberEnded}, true},
		"one inside":                 {mssql.Error{Number: NumberNested}, false},
		"deadlock":                   {mssql.Error{Number: 1205}, false}, // what comes next tells
		"an error without a reason":  {mssql.Error{Message: "Request failed but didn't provide reason"}, false},
		"no error":                   {nil, false},
		"an error of the connection": {io.EOF, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TransactionEnded(c.err); got != c.want {
				t.Errorf("%v ends the transaction: %v, want %v", c.err, got, c.want)
			}
		})
	}
}

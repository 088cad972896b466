package sqlserver

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// dialect has the differences between the database products: names, the texts of
// statements, and the meaning of error numbers. All decisions are in the other files,
// which are the same for all products.
type dialect interface {
	// product is the name of the database product, for messages.
	product() string

	// defaultSchema is the schema of tables if Config.Schema is empty.
	defaultSchema() string

	// length returns the number of characters of a text as columns of names count them.
	length(text string) int

	// table parses the name or the address of a queue.
	table(queue string, in location) (table, error)

	// queue returns the statements for a queue's table.
	queue(t table) *queueTexts

	// subscriptions and delayed return the statements for the tables of these names.
	subscriptions(t table) *subscriptionTexts
	delayed(t table) *delayedTexts

	// claim leases up to n messages that became available at a time or later. take and
	// takeForeign remove them, the latter from a table that NServiceBus created. They
	// return the columns of queueRow. If the headers, body or last error of a message have
	// more than whole bytes, claim returns it without these contents; one more column is
	// the size of all three, which is 0 for a message with its contents. n is one of
	// batchSizes. The number is that of the process, see presence.
	claim(t *queueTexts, n int, lease time.Duration, from time.Time, whole int64, number int32) *sqlexec.Statement
	take(t *queueTexts, n int, from time.Time) *sqlexec.Statement
	takeForeign(t *queueTexts, n int) *sqlexec.Statement

	// insert returns the statements that add messages to a queue's table. With foreign,
	// NServiceBus created the table and no message has a delay.
	insert(t *queueTexts, messages []newRow, foreign bool) []*sqlexec.Statement

	// insertDelayed adds messages to the table of delayed messages.
	insertDelayed(t *delayedTexts, messages []newRow) []*sqlexec.Statement

	// list turns columns of equal length, each a slice, into the arguments of a statement
	// on several rows.
	list(columns ...any) []any

	// savepoint marks a state of the transaction to which rollbackTo returns.
	savepoint(name string) *sqlexec.Statement
	rollbackTo(name string) *sqlexec.Statement

	// intact fails if the handler's statements have made a commit of the transaction
	// impossible. It is the first statement after the handler.
	intact() *sqlexec.Statement

	// columns returns a statement with a row (name, type) for each column of a table, and
	// no rows if the table does not exist.
	columns(t table) *sqlexec.Statement

	// wanted returns the columns of a queue's table, as Reprise or NServiceBus creates
	// it. The others return the statements that create tables.
	wanted(t table, foreign bool) []column
	createQueue(t table, foreign bool) []string
	createSubscriptions(t table) []string
	createDelayed(t table) []string

	// notifyTrigger creates the trigger that wakes receivers for rows of senders that do
	// not notify, if the table has none. hasNotifyTrigger has a row if the table has the
	// trigger. Both return nil if the product has no such trigger.
	notifyTrigger(t table) *sqlexec.Statement
	hasNotifyTrigger(t table) *sqlexec.Statement

	// lockSchema lets one transaction at a time create tables.
	lockSchema() *sqlexec.Statement

	// unless returns other reasons for which a table may seem not to exist.
	unless() string

	// seeing returns the rights that are needed to learn whether a table exists;
	// receiving and sending return the rights on the table that a queue's receivers and
	// senders always need.
	seeing(t table) []right
	receiving(t table) []right
	sending(t table, foreign bool) []right

	// missing returns a statement with a row (role, index, sequence) for each of these
	// rights that the role of the session lacks; grantable returns the object of the
	// right. Both are written as in GRANT.
	missing(needed []right) *sqlexec.Statement
	grantable(r right) string

	// classify returns the class of an error of the client library.
	classify(err error) fault
}

// batchSizes are the possible limits of a fetch. They are few, so that there are few
// statements: if the limit were an argument, PostgreSQL would plan each time, which takes
// longer than to fetch one message.
var batchSizes = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}

// batchSize returns the largest of batchSizes that is not above n.
func batchSize(n int) int {
	i, found := slices.BinarySearch(batchSizes, n)
	if !found {
		i--
	}
	return batchSizes[max(i, 0)]
}

// location is the location of tables whose names have none.
type location struct{ catalog, schema string }

// table is the table of a queue, or another table.
type table struct {
	location
	name    string
	quoted  string // as statements name it
	address string // as headers and NServiceBus name it
}

// column is a column of a table. kind is its type, or several: "integer or bigint".
type column struct{ name, kind string }

// queueTexts are the statements for the table of one queue. Times are the server's,
// durations are microseconds, and lists are results of dialect.list.
type queueTexts struct {
	table table

	// claim, take and takeForeign are for the dialect's methods of these names.
	claim, take, takeOne, takeForeign, takeOneForeign string

	// These settle leased messages, a list of (seq, claims). They return the seq of
	// messages whose lease was valid. abandon has the errors as a third column; renew has
	// the duration of the new lease before the list.
	complete, abandon, release, renew string

	// leased returns the seq of one leased message (seq 1, claims 2), if the lease is
	// valid, and fence removes the message. If the lease is not valid, fence fails, so
	// that the statements sent together with it are not run.
	leased, fence string

	// orphans releases leased messages from the head of the queue whose process is
	// neither among these (1) nor connected now. It returns their due.
	orphans string

	// contents returns the seq, headers, body and last error of claimed messages, a list
	// as above. begin is renew, also for a lease that has ended, unless another receiver
	// has claimed the message.
	contents, begin string

	// insert and insertAll are for the dialect's method insert: messages without delay or
	// expiry.
	insert, insertAll string

	// GiveBack, recount and retake are only for the dialect that keeps messages in
	// transactions in tables that Reprise created.

	// GiveBack adds a removed message again: the columns of queueRow in their order without
	// expired.
	giveBack string

	// recount raises the count of one message (seq 1, claims 2) that no receiver has: its
	// deliveries (3), claims (4) and error (5). It returns its seq.
	recount string

	// retake removes one message (seq 1) if this is the same delivery of it (2, and
	// claims 3) and no receiver has it. It returns its seq. retakeForeign does so by id
	// and seq.
	retake, retakeForeign string

	// purge removes some of the messages that could be delivered now, as many as fit into
	// one transaction; purgeForeign does so in a table that NServiceBus created.
	purge, purgeForeign string

	// next returns the microseconds until the next message that no receiver has becomes
	// available, 0 or less for now; no row, or NULL: there is none. nextForeign is the
	// same for a table that NServiceBus created, in which no message is delayed.
	next, nextForeign string
}

// subscriptionTexts are the statements on the table of subscriptions.
type subscriptionTexts struct {
	table table

	subscribers string // the addresses of the queues subscribed to a topic (1)
	subscribed  string // the topics of an endpoint (1) with a queue address (2)
	subscribe   string // queue address (1), endpoint (2), topic (3)
	unsubscribe string // endpoint (1), topic (2)
}

// delayedTexts are the statements for the table of delayed messages, which wait for
// queues that NServiceBus created.
type delayedTexts struct {
	table table

	// take removes up to n (1) messages that are due, and returns the columns of waiting.
	take string
	// forward adds one message to its queue: expires, headers, body. Its text names the
	// queue's table.
	forward func(t table) string
	// postpone makes a message (1) with a number of tries (4) due after a duration (2),
	// because of an error (3), and stores the new number of tries (5). remove removes a
	// message (1) with a number of tries (2). Both return its seq.
	postpone, remove string
	// next is like that of queueTexts.
	next string
}

// queueRow is a row of a queue's table.
type queueRow struct {
	id         string
	seq        int64
	headers    text
	body       []byte
	due        time.Time
	deliveries int    // including this one
	claims     int    // fences off receivers whose lease has ended
	expires    string // as GiveBack takes it, or ""
	expired    bool
	lastError  string
	size       int64 // of headers, body and last error, if a claim does not return them
}

// nextClaim is the number of the next lease, as the statements count it.
func (r *queueRow) nextClaim() int { return r.claims%math.MaxInt32 + 1 }

// text is a column that is read into the same buffer row after row.
type text []byte

// ScanBytes implements pgtype.BytesScanner.
func (t *text) ScanBytes(v []byte) error {
	*t = append((*t)[:0], v...)
	return nil
}

// Scan implements sql.Scanner.
func (t *text) Scan(value any) error {
	switch v := value.(type) {
	case string:
		*t = append((*t)[:0], v...)
	case []byte:
		*t = append((*t)[:0], v...)
	default:
		return fmt.Errorf("a column of text has a value of type %T", value)
	}
	return nil
}

// columns returns pointers to the fields, in the order of the statements' columns.
func (r *queueRow) columns() []any {
	return []any{&r.id, &r.seq, &r.headers, &r.body, &r.due, &r.deliveries, &r.claims, &r.expires, &r.expired, &r.lastError}
}

// delayedRow is a row of the table of delayed messages.
type delayedRow struct {
	seq         int64
	destination string
	expires     string
	headers     string
	body        []byte
	tries       int // failed ones
}

func (w *delayedRow) columns() []any {
	return []any{&w.seq, &w.destination, &w.expires, &w.headers, &w.body, &w.tries}
}

// newRow is a message to be inserted into a table.
type newRow struct {
	destination string // only in the table of delayed messages
	headers     string
	body        []byte
	delay       time.Duration
	ttl         time.Duration // 0: it does not expire
}

// fault is the class of an error.
type fault int

const (
	// faultStatement: the server refused the statement, and nothing was done.
	faultStatement fault = iota
	// faultOutage: the connection or the server is gone; whether the statement was
	// executed is unknown.
	faultOutage
	// faultUnreached: as faultOutage, but the statement was certainly not executed.
	faultUnreached
	// faultBusy: nothing was done, and a retry may well succeed later: a deadlock, a lock
	// or statement timeout, a full disk.
	faultBusy
	// faultConflict: as faultBusy, but a retry may succeed at once: the server could not
	// serialize the statement with concurrent transactions.
	faultConflict
	// faultReadOnly: nothing was done, because the server is a standby, or has become
	// one.
	faultReadOnly
	// faultNoTable: a table does not exist.
	faultNoTable
	// faultRefused: credentials, rights or the database itself; waiting does not help.
	faultRefused
)

// fault classifies an error. Errors that this package detected itself, with a table for
// example, are permanent.
func (t *Transport) fault(err error) fault {
	if transport.IsPermanent(err) {
		return faultStatement
	}
	return t.dialect.classify(err)
}

// transient reports whether a retry may help.
func (f fault) transient() bool {
	switch f {
	case faultOutage, faultUnreached, faultBusy, faultConflict, faultReadOnly:
		return true
	default:
		return false
	}
}

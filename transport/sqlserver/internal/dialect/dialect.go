package dialect

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Dialect has the differences between the database products: names, the texts of
// statements, and the meaning of error numbers. All decisions are in other packages, which
// are the same for all products.
type Dialect interface {
	// Product is the name of the database product, for messages.
	Product() string

	// DefaultSchema is the schema of tables if Config.Schema is empty.
	DefaultSchema() string

	// MaxName is the longest name of a table, as the product counts.
	MaxName() int

	// Length returns the number of characters of a text as columns of names count them.
	Length(text string) int

	// Table parses the name or the address of a queue.
	Table(queue string, in Location) (Table, error)

	// Queue returns the statements for a queue's table.
	Queue(t Table) *QueueTexts

	// Subscriptions and Delayed return the statements for the tables of these names.
	Subscriptions(t Table) *SubscriptionTexts
	Delayed(t Table) *DelayedTexts

	// Claim leases up to n messages that became available at a time or later. Take and
	// TakeForeign remove them, the latter from a table that NServiceBus created. They
	// return the columns of Row. If the headers, body or last error of a message have
	// more than whole bytes, Claim returns it without these contents; one more column is
	// the size of all three, which is 0 for a message with its contents. n is one of
	// BatchSizes. The number is that of the process, see package presence.
	Claim(t *QueueTexts, n int, lease time.Duration, from time.Time, whole int64, number int32) *sqlexec.Statement
	Take(t *QueueTexts, n int, from time.Time) *sqlexec.Statement
	TakeForeign(t *QueueTexts, n int) *sqlexec.Statement

	// Except changes a statement of Claim, Take, TakeForeign or First so that it leaves out
	// the rows with these seqs. First returns the seq of the row that they would find first,
	// and locks it. It is nil if the product's errors never are FaultRow.
	Except(s *sqlexec.Statement, seqs []int64)
	First(t *QueueTexts, foreign bool) *sqlexec.Statement

	// Insert returns the statements that add messages to a queue's table. With foreign,
	// NServiceBus created the table and no message has a delay.
	Insert(t *QueueTexts, messages []NewRow, foreign bool) []*sqlexec.Statement

	// InsertDelayed adds messages to the table of delayed messages.
	InsertDelayed(t *DelayedTexts, messages []NewRow) []*sqlexec.Statement

	// List turns columns of equal length, each a slice, into the arguments of a statement
	// on several rows.
	List(columns ...any) []any

	// Savepoint marks a state of the transaction to which RollbackTo returns.
	Savepoint(name string) *sqlexec.Statement
	RollbackTo(name string) *sqlexec.Statement

	// Intact fails if the handler's statements have made a commit of the transaction
	// impossible. It is the first statement after the handler.
	Intact() *sqlexec.Statement

	// Columns returns a statement with a row (name, type) for each column of a table, and
	// no rows if the table does not exist.
	Columns(t Table) *sqlexec.Statement

	// Wanted returns the columns of a queue's table, as Reprise or NServiceBus creates
	// it. The others return the statements that create tables.
	Wanted(t Table, foreign bool) []Column
	CreateQueue(t Table, foreign bool) []string
	CreateSubscriptions(t Table) []string
	CreateDelayed(t Table) []string

	// NotifyTrigger creates the trigger that wakes receivers for rows of senders that do
	// not notify, if the table has none, or one with the function of a stranger.
	// HasNotifyTrigger has a row if that changes nothing. Both return nil if the product
	// has no such trigger.
	NotifyTrigger(t Table) *sqlexec.Statement
	HasNotifyTrigger(t Table) *sqlexec.Statement

	// ForeignOwner has a row with the owner of a table if that is none of the roles that may
	// well have created it: the role of the session, one that it is a member of, a superuser,
	// or the owner of the database or of the schema. It returns nil if the product does not
	// let other roles create tables in the schema.
	ForeignOwner(t Table) *sqlexec.Statement

	// LockSchema lets one transaction at a time create tables. It fails with FaultBusy
	// after SchemaLockTimeout: the lock needs no right, so any session may hold it.
	LockSchema() *sqlexec.Statement

	// Unless returns other reasons for which a table may seem not to exist.
	Unless() string

	// Seeing returns the rights that are needed to learn whether a table exists;
	// Receiving and Sending return the rights on the table that a queue's receivers and
	// senders always need.
	Seeing(t Table) []Right
	Receiving(t Table) []Right
	Sending(t Table, foreign bool) []Right

	// Missing returns a statement with a row (role, index, sequence) for each of these
	// rights that the role of the session lacks; Grantable returns the object of the
	// right. Both are written as in GRANT.
	Missing(needed []Right) *sqlexec.Statement
	Grantable(r Right) string

	// Classify returns the class of an error of the client library.
	Classify(err error) Fault
}

// These are the savepoints of a message's transaction.
const (
	BeforeHandler = "reprise_handler"
	InHandler     = "reprise_part_" // and a number: Savepoint
	AfterHandler  = "reprise_sends"
)

// BatchSizes are the possible limits of a fetch. They are few, so that there are few
// statements: if the limit were an argument, PostgreSQL would plan each time, which takes
// longer than to fetch one message.
var BatchSizes = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}

// BatchSize returns the largest of BatchSizes that is not above n.
func BatchSize(n int) int {
	i, found := slices.BinarySearch(BatchSizes, n)
	if !found {
		i--
	}
	return BatchSizes[max(i, 0)]
}

// Location is the location of tables whose names have none.
type Location struct{ Catalog, Schema string }

// Table is the table of a queue, or another table.
type Table struct {
	Location
	Name    string
	Quoted  string // as statements name it
	Address string // as headers and NServiceBus name it
}

// Column is a column of a table. Kind is its type, or several: "integer or bigint".
type Column struct{ Name, Kind string }

// QueueTexts are the statements for the table of one queue. Times are the server's,
// durations are microseconds, and lists are results of [Dialect.List].
type QueueTexts struct {
	Table Table

	// Claim, take and TakeForeign are for the dialect's methods of these names.
	Claim, Take, TakeOne, TakeForeign, TakeOneForeign string

	// First and FirstForeign are for the dialect's method First.
	First, FirstForeign string

	// These settle leased messages, a list of (seq, claims). They return the seq of
	// messages whose lease was valid. abandon has the errors as a third column; renew has
	// the duration of the new lease before the list.
	Complete, Abandon, Release, Renew string

	// Leased returns the seq of one leased message (seq 1, claims 2), if the lease is
	// valid, and fence removes the message. If the lease is not valid, fence fails, so
	// that the statements sent together with it are not run.
	Leased, Fence string

	// Orphans releases leased messages from the head of the queue whose process is
	// neither among these (1) nor connected now. It returns their due.
	Orphans string

	// Contents returns the seq, headers, body and last error of claimed messages, a list
	// as above. begin is renew, also for a lease that has ended, unless another receiver
	// has claimed the message.
	Contents, Begin string

	// Insert and InsertAll are for the dialect's method insert: messages without delay or
	// expiry.
	Insert, InsertAll string

	// GiveBack, recount and retake are only for the dialect that keeps messages in
	// transactions in tables that Reprise created.

	// GiveBack adds a removed message again: the columns of Row in their order without
	// expired.
	GiveBack string

	// Recount raises the count of one message (seq 1, claims 2) that no receiver has: its
	// deliveries (3), claims (4) and error (5). It returns its seq.
	Recount string

	// Retake removes one message (seq 1) if this is the same delivery of it (2, and
	// claims 3) and no receiver has it. It returns its seq. RetakeForeign does so by id
	// and seq.
	Retake, RetakeForeign string

	// Purge removes some of the messages that could be delivered now, as many as fit into
	// one transaction; PurgeForeign does so in a table that NServiceBus created.
	Purge, PurgeForeign string

	// Next returns the microseconds until the next message that no receiver has becomes
	// available, 0 or less for now; no row, or NULL: there is none. NextForeign is the
	// same for a table that NServiceBus created, in which no message is delayed.
	Next, NextForeign string
}

// SubscriptionTexts are the statements on the table of subscriptions.
type SubscriptionTexts struct {
	Table Table

	Subscribers string // the addresses of the queues subscribed to a topic (1)
	Subscribed  string // the topics of an endpoint (1) with a queue address (2)
	Subscribe   string // queue address (1), endpoint (2), topic (3)
	Unsubscribe string // endpoint (1), topic (2)

	RemoveQueue string // ends the subscriptions of a queue address (1), and returns their topics
	RemoveTopic string // ends the subscriptions to a topic (1)

	// IsCurrent returns 1 if a statement sees all commits before its own begin, and 0 if it
	// sees those before its transaction's. It is empty if the server may refuse the question.
	IsCurrent string
}

// DelayedTexts are the statements for the table of delayed messages, which wait for
// queues that NServiceBus created.
type DelayedTexts struct {
	Table Table

	// Take removes up to n (1) messages that are due, and returns the columns of [DelayedRow].
	Take string
	// Forward adds one message to its queue: expires, headers, body. Its text names the
	// queue's table.
	Forward func(t Table) string
	// Postpone makes a message (1) with a number of tries (4) due after a duration (2),
	// because of an error (3), and stores the new number of tries (5). Remove removes a
	// message (1) with a number of tries (2). Both return its seq.
	Postpone, Remove string
	// RemoveQueue removes the messages for a queue address (1).
	RemoveQueue string
	// Next is like that of QueueTexts.
	Next string
}

// Row is a row of a queue's table.
type Row struct {
	ID         string
	Seq        int64
	Headers    Text
	Body       []byte
	Due        time.Time
	Deliveries int    // including this one
	Claims     int    // fences off receivers whose lease has ended
	Expires    string // as GiveBack takes it, or ""
	Deadline   Deadline
	LastError  string
	Size       int64 // of headers, body and last error, if a claim does not return them
}

// Deadline is when a row expires, by the clock of this process; the zero time: never. The column
// is the number of microseconds until then by the server's clock, or NULL.
type Deadline struct{ time.Time }

// Scan implements sql.Scanner.
func (d *Deadline) Scan(value any) error {
	d.Time = time.Time{}
	switch v := value.(type) {
	case nil:
	case int64:
		const longest = int64(math.MaxInt64 / time.Microsecond)
		d.Time = time.Now().Add(time.Duration(max(-longest, min(v, longest))) * time.Microsecond)
	default:
		return fmt.Errorf("a number of microseconds has the type %T", value)
	}
	return nil
}

// Passed reports whether the row has expired.
func (d *Deadline) Passed() bool { return !d.IsZero() && !d.After(time.Now()) }

// NextClaim is the number of the next lease, as the statements count it.
func (r *Row) NextClaim() int { return r.Claims%math.MaxInt32 + 1 }

// StoredInt limits a count to the range of a column.
func StoredInt(n int) int { return min(n, math.MaxInt32) }

// Text is a column that is read into the same buffer row after row.
type Text []byte

// ScanBytes implements pgtype.BytesScanner.
func (t *Text) ScanBytes(v []byte) error {
	*t = append((*t)[:0], v...)
	return nil
}

// Scan implements sql.Scanner.
func (t *Text) Scan(value any) error {
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

// Columns returns pointers to the fields, in the order of the statements' columns.
func (r *Row) Columns() []any {
	return []any{&r.ID, &r.Seq, &r.Headers, &r.Body, &r.Due, &r.Deliveries, &r.Claims, &r.Expires, &r.Deadline, &r.LastError}
}

// WithoutContents returns a copy for the contents that are fetched later.
func (r *Row) WithoutContents() *Row {
	c := *r
	c.Headers, c.Body = nil, nil
	return &c
}

// DelayedRow is a row of the table of delayed messages.
type DelayedRow struct {
	Seq         int64
	Destination string
	Expires     string
	Headers     string
	Body        []byte
	Tries       int // failed ones
}

// Columns returns pointers to the fields, in the order of the statements' columns.
func (w *DelayedRow) Columns() []any {
	return []any{&w.Seq, &w.Destination, &w.Expires, &w.Headers, &w.Body, &w.Tries}
}

// NewRow is a message to be inserted into a table.
type NewRow struct {
	Destination string // only in the table of delayed messages
	Headers     string
	Body        []byte
	Delay       time.Duration
	TTL         time.Duration // 0: it does not expire
}

// Fault is the class of an error.
type Fault int

const (
	// FaultStatement: the server refused the statement, and nothing was done.
	FaultStatement Fault = iota
	// FaultRow: as FaultStatement, because of the values of one row, or of code in the
	// database that runs for each row. Statements about other rows may succeed.
	FaultRow
	// FaultOutage: the connection or the server is gone; whether the statement was
	// executed is unknown.
	FaultOutage
	// FaultUnreached: as FaultOutage, but the statement was certainly not executed.
	FaultUnreached
	// FaultBusy: nothing was done, and a retry may well succeed later: a deadlock, a lock
	// or statement timeout, a full disk.
	FaultBusy
	// FaultConflict: as FaultBusy, but a retry may succeed at once: the server could not
	// serialize the statement with concurrent transactions.
	FaultConflict
	// FaultReadOnly: nothing was done, because the server is a standby, or has become
	// one.
	FaultReadOnly
	// FaultNoTable: a table does not exist.
	FaultNoTable
	// FaultRefused: credentials, rights or the database itself; waiting does not help.
	FaultRefused
)

// ConflictPause is the pause before a fetch that conflicted with another transaction is
// tried again. A conflict is no outage.
const ConflictPause = time.Millisecond

// RefusesStatement reports whether the server refused the statement itself or one of its rows.
func (f Fault) RefusesStatement() bool { return f == FaultStatement || f == FaultRow }

// Transient reports whether a retry may help.
func (f Fault) Transient() bool {
	switch f {
	case FaultOutage, FaultUnreached, FaultBusy, FaultConflict, FaultReadOnly:
		return true
	default:
		return false
	}
}

// SchemaLockTimeout is much longer than it takes to create tables.
const SchemaLockTimeout = 3 * time.Second

// DelayedTable is the name of the table of delayed messages.
const DelayedTable = "reprise_delayed"

// PurgeLimit is how many messages a statement removes. Each statement is a transaction: a
// single one for all messages would block the receivers of a long queue, and lock the
// whole table on Microsoft SQL Server.
const PurgeLimit = "1000"

// RowsAtOnce and BytesAtOnce limit one statement.
const (
	RowsAtOnce  = 1000
	BytesAtOnce = 16 << 20
)

package sqlserver

import "context"

// Begin begins a transaction as messages have them. It returns what rolls it back, and
// what reports whether it has ended.
func (t *Transport) Begin(ctx context.Context) (rollback func(), ended func() bool, err error) {
	tx, err := t.db.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	return func() { tx.rollback(ctx) }, tx.lost, nil
}

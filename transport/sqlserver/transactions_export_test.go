package sqlserver

import "context"

// Begin begins a transaction as messages have them. It returns what rolls it back, and
// what reports whether it has ended.
func (t *Transport) Begin(ctx context.Context) (rollback func(), ended func() bool, err error) {
	tx, err := t.db.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	return func() { tx.Rollback(ctx) }, tx.Lost, nil
}

// Package testtx carries the transaction of a handler's test in a context, from package
// sqlservertest to package sqlserver.
package testtx

import "context"

type key struct{}

// With returns a context that carries tx.
func With(ctx context.Context, tx any) context.Context { return context.WithValue(ctx, key{}, tx) }

// From returns the transaction that With put there, or nil.
func From(ctx context.Context) any { return ctx.Value(key{}) }

// Package s3bodies stores the bodies of messages that are too large for Amazon SQS in a bucket of Amazon S3. It
// implements [sqs.Bodies]:
//
//	bodies, err := s3bodies.New(s3bodies.Config{Bucket: "example-bodies", KeyPrefix: "shop"})
//	...
//	transport, err := sqs.New(sqs.Config{Bodies: bodies})
//
// It is a separate module, so that only programs that use it download the S3 client.
//
// # Deletion
//
// Nothing here deletes an object: several subscribers read the same body, and so does an operator who returns a message
// from the error queue. A lifecycle rule of the bucket has to expire the objects below Config.KeyPrefix. S3 counts
// whole days from the creation of the object. Add up the retention of the input queue (14 days where Provision made
// it), the longest delay of a message and the time for which a message stays in the error queue, and add a day. A
// rule that is too short loses bodies: their messages go to the error queue as malformed. In a bucket with versions the rule
// also has to expire noncurrent versions.
//
//	aws s3api put-bucket-lifecycle-configuration --bucket example-bodies --lifecycle-configuration '{"Rules": [{
//	    "ID": "Bodies of messages", "Status": "Enabled", "Filter": {"Prefix": "shop/"}, "Expiration": {"Days": 30}}]}'
//
// An object is stored before its message is sent. If sending fails, the object remains
// until the lifecycle rule removes it; the next attempt stores a new one. A copy of a
// message, as for a delayed retry or the error queue, has a separate object.
//
// # Rights
//
// [Policy] returns the least IAM policy as JSON, for example
//
//	policy, err := s3bodies.Policy(s3bodies.Config{Bucket: "example-bodies", KeyPrefix: "shop"}, s3bodies.PolicyFor{})
//
// Senders need s3:PutObject, receivers s3:GetObject, on arn:aws:s3:::example-bodies/shop/*. An endpoint sends copies of the
// messages that it receives, so it needs both. Receivers also need s3:ListBucket on arn:aws:s3:::example-bodies: without it S3
// answers "access denied" for a missing object, and the message goes to the error queue after several tries only. With a key of AWS KMS senders also need kms:GenerateDataKey on the key, and receivers kms:Decrypt.
//
// A receiver gets the object that the message names, if it is below Config.KeyPrefix or Config.ReadPrefixes: every sender to
// its queue chooses among these objects. Use a bucket, or a prefix, for bodies alone.
//
// # NServiceBus
//
// Endpoints of NServiceBus read the stored bodies of this package, and this package reads theirs, if both use the same
// bucket: the message carries the object's key, with the prefix. If the prefixes differ, Config.ReadPrefixes needs that of
// NServiceBus, the keyPrefix of its S3Settings. Objects
// that NServiceBus encrypts with a key of the customer (SSE-C) cannot be read.
package s3bodies

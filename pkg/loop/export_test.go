package loop

// Share is the share of a member, for tests that need members of certain shares.
var Share = share

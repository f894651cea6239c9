/* What this copy of third_party.cpp claims too much. */
extern const char third_party_claim[];
const char third_party_claim[] = THIRD_PARTY_CLAIM;
